"""What connectors of several systems read alike: folders of files, schemas, exact values, Debezium envelopes."""
