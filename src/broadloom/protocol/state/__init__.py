"""State for late joiners: a newcomer asks one member for named state and continues at an exact position."""
