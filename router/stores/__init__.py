"""What outlives one router and is seen by all: sessions, words and leases in a store outside the process."""
