package rig

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func serverTLS(t *testing.T, pair Pair) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{pair.TLS(t)}}
}

func clientTLS(ca *Authority) *tls.Config { return &tls.Config{RootCAs: ca.Pool()} }

// chat sends a message and returns the answer.
func chat(stream grpc.ClientStream, text string) (string, error) {
	if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
		return "", err
	}
	answer := new(wrapperspb.StringValue)
	err := stream.RecvMsg(answer)
	return answer.Value, err
}

// seen returns an error unless a load has successes of every kind.
func (l *Load) seen(kinds ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range kinds {
		if l.result.Done[kind] < 3 {
			return fmt.Errorf("%s: %d", kind, l.result.Done[kind])
		}
	}
	return nil
}

// failed returns an error unless a load has failures of every kind.
func (l *Load) failed(kinds ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range kinds {
		of := func(f Failure) bool { return f.Kind == kind }
		if !slices.ContainsFunc(l.result.Failures, of) {
			return fmt.Errorf("%s: no failure", kind)
		}
	}
	return nil
}

// syncBuffer is a buffer that one goroutine writes while another reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
