// Package bench measures the whole chain side by side with a baseline: from a
// change in a real API server to the first answer from the new endpoint
// through a real Envoy. `make bench` prints it. Nothing here asserts a time;
// what must not grow is asserted as allocations and bytes beside the code.
package bench
