package rig

import "time"

// pollInterval is how often conditions are asked.
const pollInterval = 10 * time.Millisecond

// Eventually waits until cond returns nil and fails the test with its last
// error when that does not happen in time.
func Eventually(t T, timeout time.Duration, cond func() error, msg string) {
	t.Helper()
	if err := poll(timeout, cond); err != nil {
		t.Fatalf("%s: not within %s: %v", msg, timeout, err)
	}
}

// Consistently fails the test as soon as cond returns an error within the
// given time.
func Consistently(t T, during time.Duration, cond func() error, msg string) {
	t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(pollInterval) {
		if err := cond(); err != nil {
			t.Fatalf("%s: %v", msg, err)
		}
	}
}

// poll returns nil once cond does, or its last error after the timeout.
func poll(timeout time.Duration, cond func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := cond()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollInterval)
	}
}
