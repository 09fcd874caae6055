"""Takes out of text what must not leave: secrets, what users asked, and in a bundle who and where they are."""
