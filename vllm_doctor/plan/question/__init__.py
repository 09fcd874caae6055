"""What was asked, and what is known before it is planned."""
