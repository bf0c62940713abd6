"""How much quality each mode costs and how much time it saves, measured on questions with known answers."""
