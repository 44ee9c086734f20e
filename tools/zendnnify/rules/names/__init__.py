"""Rules that rename: exceptions to the general rule, and edits that follow from a name's place."""
