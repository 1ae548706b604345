// Package arch holds the tests that keep the architecture as it is drawn: who
// imports whom, what the pure packages stay away from, and the house rules
// that a machine can check.
package arch
