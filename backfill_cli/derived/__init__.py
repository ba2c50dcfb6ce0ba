"""What a derived table's SELECT reads, and which of its rows a change reaches: pure, by the SQL alone."""
