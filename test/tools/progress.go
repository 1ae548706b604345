package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// beat is how often a long step says that it is still at work.
const beat = 30 * time.Second

// progress announces a step and repeats itself until done is called.
func progress(out io.Writer, t tool) (done func(error)) {
	start := time.Now()
	fmt.Fprintf(out, "%s: installing (%s), usually %s\n", t.name, t.why, t.usual)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				fmt.Fprintf(out, "%s: %s so far, usually %s\n", t.name, time.Since(start).Round(time.Second), t.usual)
			case <-stop:
				return
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		outcome := "done"
		if err != nil {
			outcome = "failed"
		}
		fmt.Fprintf(out, "%s: %s after %s\n", t.name, outcome, time.Since(start).Round(100*time.Millisecond))
	}
}

// lock takes an exclusive file lock and says so when it has to wait.
func lock(ctx context.Context, path string, out io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !waited {
			fmt.Fprintln(out, "waiting for another process that installs the tools")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
