package translator

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// attempt runs f and turns a panic into an error, so that one object cannot
// harm another.
func attempt(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v at %s", r, panicSite())
		}
	}()
	return f()
}

// panicSite returns the function that panicked: enough for a report to an
// owner, without the addresses of a full trace.
func panicSite() string {
	_, stack, _ := strings.Cut(string(debug.Stack()), "\npanic(")
	for line := range strings.Lines(stack) {
		if end := strings.LastIndex(line, "("); end > 0 && strings.HasPrefix(line, "fairway/") {
			return line[:end]
		}
	}
	return "an unknown place"
}
