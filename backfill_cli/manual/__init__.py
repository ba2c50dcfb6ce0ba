"""What is made of the help of all commands: man pages and shell completions.

A build runs `python -m backfill_cli.manual FOLDER`, so that the wheel has these files in `share`.
"""
