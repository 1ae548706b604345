package rig

import (
	"context"
	"os"
	"slices"
	"testing"
)

func TestRunCleansUpInReverse(t *testing.T) {
	var order []int
	dir := ""
	code := Run("session", func(_ context.Context, s *Session) {
		dir = s.TempDir()
		s.Cleanup(func() { order = append(order, 1) })
		s.Cleanup(func() { order = append(order, 2) })
	})
	if code != 0 || !slices.Equal(order, []int{2, 1}) {
		t.Errorf("code %d, order %v", code, order)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

func TestRunFails(t *testing.T) {
	for name, f := range map[string]func(*Session){
		"fatal":              func(s *Session) { s.Fatalf("the end") },
		"error":              func(s *Session) { s.Errorf("not good") },
		"error in a cleanup": func(s *Session) { s.Cleanup(func() { s.Errorf("not good") }) },
	} {
		cleaned := false
		code := Run("session", func(_ context.Context, s *Session) {
			s.Cleanup(func() { cleaned = true })
			f(s)
		})
		if code != 1 || !cleaned {
			t.Errorf("%s: code %d, cleaned %v", name, code, cleaned)
		}
	}
}
