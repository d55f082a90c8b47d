"""Plans, prices and months for invoices."""
