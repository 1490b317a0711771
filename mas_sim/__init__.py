"""mas_sim."""
