"""Who may write the state of an id: owners, epochs, take-overs, and their errors."""
