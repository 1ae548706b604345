// Package status tells the owners of Ingresses what became of them: the address
// at which they are served, in status.loadBalancer, and an Event for each
// report. Everything is written by two goroutines at a limited rate, so the
// pipeline never waits for the API server.
package status
