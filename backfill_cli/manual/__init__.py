"""What is made of the help of all commands: man pages, shell completions, docs/commands.md.

A build runs `python -m backfill_cli.manual FOLDER`, so that the wheel has these files in `share`.
"""
