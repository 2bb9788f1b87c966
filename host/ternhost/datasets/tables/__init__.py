"""Tables in text files as people write them: their rows, marks, numbers and times."""
