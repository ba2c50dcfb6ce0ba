"""Reference readers: bytes and options in, `Rows` or `Refused` out. Plain Python; nothing of the product."""
