"""What Kafka as upstream and as sink share: its client, how a cluster is reached, and the messages of ranges."""
