package xds

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// TLSFromDir returns a server configuration from tls.crt, tls.key and ca.crt in
// a directory. A client certificate signed by the CA is required. The files are
// read again when they changed; while they cannot be read or do not belong
// together, new connections get what was read last.
func TLSFromDir(dir string) (*tls.Config, error) {
	f := &tlsFiles{dir: dir}
	if err := f.reload(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		ClientAuth: tls.RequireAndVerifyClientCert,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return f.current(), nil
		},
	}, nil
}

// tlsFiles keeps the configuration made from the files of a directory.
type tlsFiles struct {
	dir string

	mu     sync.Mutex
	stamp  [3]fileStamp
	config *tls.Config
}

// fileStamp tells versions of a file apart. It follows symbolic links, which is
// how Kubernetes replaces mounted files.
type fileStamp struct {
	modified, size int64
}

func (f *tlsFiles) paths() [3]string {
	return [3]string{filepath.Join(f.dir, "tls.crt"), filepath.Join(f.dir, "tls.key"), filepath.Join(f.dir, "ca.crt")}
}

// current returns the configuration for a new connection.
func (f *tlsFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed() {
		_ = f.reload() // half-written files: the next handshake tries again
	}
	return f.config
}

// stamps describe the files as they are now; a missing one has the zero stamp.
func (f *tlsFiles) stamps() (out [3]fileStamp) {
	for i, path := range f.paths() {
		if info, err := os.Stat(path); err == nil {
			out[i] = fileStamp{modified: info.ModTime().UnixNano(), size: info.Size()}
		}
	}
	return out
}

func (f *tlsFiles) changed() bool { return f.stamps() != f.stamp }

// reload reads the files. It takes the stamps first: a change while it reads is
// noticed the next time.
func (f *tlsFiles) reload() error {
	stamp, paths := f.stamps(), f.paths()
	pair, err := tls.LoadX509KeyPair(paths[0], paths[1])
	if err != nil {
		return fmt.Errorf("reading the xDS certificate from %s: %w", f.dir, err)
	}
	ca, err := os.ReadFile(paths[2])
	if err != nil {
		return fmt.Errorf("reading the xDS client CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return fmt.Errorf("reading the xDS client CA from %s: %w", paths[2], errors.New("no certificate in it"))
	}
	f.stamp = stamp
	f.config = &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		Certificates:           []tls.Certificate{pair},
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              pool,
		SessionTicketsDisabled: true, // a resumed session would keep trusting a CA that was taken away
	}
	return nil
}
