package rig

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// T is what the rig needs of a test. *testing.T, *testing.B and *Session have it.
type T interface {
	Helper()
	Name() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

// Session is a T for programs and for parts that outlive a single test.
type Session struct {
	name string

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// fatal is what Session.Fatalf panics with.
type fatal struct{ message string }

// Run calls f with a context that ends on SIGINT or SIGTERM and cleans up
// after it. It returns the exit code of the program.
func Run(name string, f func(ctx context.Context, s *Session)) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &Session{name: name}
	return s.run(func() { f(ctx, s) })
}

func (s *Session) run(f func()) (code int) {
	defer func() {
		if s.Failed() {
			code = 1
		}
	}()
	defer s.finish()
	f()
	return 0
}

// finish reports a Fatalf, if that is what ended the session, and cleans up.
func (s *Session) finish() {
	switch r := recover().(type) {
	case nil:
	case fatal:
		fmt.Fprintf(os.Stderr, "%s: %s\n", s.name, r.message)
	default:
		s.clean()
		panic(r)
	}
	s.clean()
}

// clean runs the cleanups, last first.
func (s *Session) clean() {
	for {
		s.mu.Lock()
		n := len(s.cleanups)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanups[n-1]
		s.cleanups = s.cleanups[:n-1]
		s.mu.Unlock()
		f()
	}
}

// Helper exists for T.
func (s *Session) Helper() {}

// Name returns the name that Run was given.
func (s *Session) Name() string { return s.name }

// Logf writes a line to standard error.
func (s *Session) Logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// Errorf writes a line and marks the session as failed.
func (s *Session) Errorf(format string, args ...any) {
	s.Logf(format, args...)
	s.fail()
}

// Fatalf ends the session. Only the goroutine that runs it may call this.
func (s *Session) Fatalf(format string, args ...any) {
	s.fail()
	panic(fatal{fmt.Sprintf(format, args...)})
}

func (s *Session) fail() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = true
}

// Failed reports whether Errorf or Fatalf was called.
func (s *Session) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Cleanup registers a function to call at the end.
func (s *Session) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

// TempDir returns a new folder that is removed at the end.
func (s *Session) TempDir() string {
	dir, err := os.MkdirTemp("", "fairway-"+s.name+"-")
	if err != nil {
		s.Fatalf("temporary folder: %v", err)
	}
	s.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
