package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// logLines is how much of a process's log a failing test shows.
const logLines = 80

// process is a program that the rig runs and may start again. Its output goes
// to one file, whichever run wrote it.
type process struct {
	t       T
	name    string
	path    string
	args    []string
	env     []string
	logFile string
	inside  *netns // the network namespace to run in; nil: the rig's own

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the current run has ended
	code int           // valid once done is closed
}

// newProcess prepares a process. It is killed, and its log shown if the test
// has failed, when the test ends.
func newProcess(t T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, path: path, args: args, logFile: filepath.Join(t.TempDir(), name+".log")}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("log of %s, last %d lines:\n%s", name, logLines, tail(p.log(), logLines))
		}
	})
	return p
}

// start runs the process. The kernel kills it when the rig dies.
func (p *process) start() error {
	out, err := os.OpenFile(p.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := p.inside.do(cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.done = cmd, done
	p.mu.Unlock()
	go func() {
		code := exitCode(cmd.Wait())
		p.mu.Lock()
		p.code = code
		p.mu.Unlock()
		close(done)
	}()
	return nil
}

// current returns the running command, or nil.
func (p *process) current() (*exec.Cmd, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd, p.done
}

// exited returns the exit code if the process has ended.
func (p *process) exited() (code int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		return 0, false
	}
	select {
	case <-p.done:
		return p.code, true
	default:
		return 0, false
	}
}

// alive returns an error with the end of the log if the process has ended.
func (p *process) alive() error {
	if code, ok := p.exited(); ok {
		return fmt.Errorf("%s ended with code %d:\n%s", p.name, code, tail(p.log(), 20))
	}
	return nil
}

// waitReady polls until ready returns nil. It fails at once when the process
// ends.
func (p *process) waitReady(timeout time.Duration, ready func() error) error {
	var last error
	err := poll(timeout, func() error {
		if last = p.alive(); last != nil {
			return nil
		}
		return ready()
	})
	if last != nil {
		return last
	}
	if err != nil {
		return fmt.Errorf("%s is not ready after %s: %w", p.name, timeout, err)
	}
	return nil
}

// stop asks the process to end and kills it after the grace period. It
// returns the exit code.
func (p *process) stop(grace time.Duration) int {
	cmd, done := p.current()
	if cmd == nil {
		return 0
	}
	// Errors mean that it has ended already.
	_ = cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-done:
	case <-time.After(grace):
		_ = cmd.Process.Kill()
		<-done
	}
	code, _ := p.exited()
	return code
}

// kill ends the process at once.
func (p *process) kill() {
	if cmd, done := p.current(); cmd != nil {
		_ = cmd.Process.Kill()
		<-done
	}
}

func (p *process) pid() int {
	cmd, _ := p.current()
	if cmd == nil {
		return 0
	}
	return cmd.Process.Pid
}

// log returns everything that the process wrote so far.
func (p *process) log() string {
	b, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// tail returns the last lines of a text, each cut to what a person reads.
func tail(text string, lines int) string {
	const width = 1000
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	last := all[max(0, len(all)-lines):]
	for i, line := range last {
		last[i] = line[:min(len(line), width)]
	}
	return strings.Join(last, "\n")
}
