"""`python -m backfill_cli`: the same as `backfill`."""

from backfill_cli.main import main

if __name__ == "__main__":
    main()
