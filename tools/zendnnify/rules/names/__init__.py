"""Rules about names: exceptions to the general rule, and the edits that they need."""
