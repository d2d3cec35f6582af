"""Jobs on real parts, and a person who does to them what people do, seeded."""
