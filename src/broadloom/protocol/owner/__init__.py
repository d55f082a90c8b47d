"""What the owner of a channel has signed, and what follows from it: the card with its quotas, and revoked tickets."""
