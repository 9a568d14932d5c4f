package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"glimpse/internal/tempdir"
)

// Errors a caller decides on, found with errors.Is.
var (
	// ErrNotExist: there is no object of that key. It is fs.ErrNotExist.
	ErrNotExist = fs.ErrNotExist
	// ErrExists: there is an object of that key, and it was not to be replaced. It
	// is fs.ErrExist.
	ErrExists = fs.ErrExist
	// ErrChanged: the object was replaced while it was read.
	ErrChanged = errors.New("the object was replaced while it was read")
	// ErrDamaged: what arrived is not what was stored.
	ErrDamaged = errors.New("the object is damaged")
	// ErrDenied: the credentials are wrong, or do not allow this.
	ErrDenied = errors.New("access denied")
)

// Store keeps objects by key: names joined by slashes, valid for fs.ValidPath. It is
// safe for concurrent use. Errors name the operation and the object's URL.
type Store interface {
	// Put stores an object, whole or not at all. ErrExists with PutOptions.New if
	// there is one.
	Put(ctx context.Context, key string, src Source, opt PutOptions) error
	// Update replaces an object of at most limit bytes by f's result, whole or not at all; old is nil if there
	// is none. Of several at once each waits for the one before and sees its result.
	Update(ctx context.Context, key string, limit int64, f func(old []byte) ([]byte, error)) error
	// Stat describes an object. ErrNotExist if there is none.
	Stat(ctx context.Context, key string) (Info, error)
	// Open starts reading the version of the object that is there now. Reads end
	// with ctx. ErrNotExist if there is none.
	Open(ctx context.Context, key string) (Object, error)
	// List returns the objects directly in a folder ("" is the root), by name.
	// Nothing of that name is an empty folder.
	List(ctx context.Context, folder string) ([]Info, error)
	// Delete removes an object; it is no error that there is none.
	Delete(ctx context.Context, key string) error
	// Sweep removes what unfinished writes of the key have left. The caller knows
	// that none of them can still succeed, or wants none to.
	Sweep(ctx context.Context, key string) error
	// URL is how a user names the object.
	URL(key string) string
}

// Source is content to store; bytes.Reader and io.SectionReader are sources. It is
// read several times and concurrently, and must not change meanwhile.
type Source interface {
	io.ReaderAt
	Size() int64
}

// PutOptions are the settings of Put.
type PutOptions struct {
	New bool // the object must not exist
	// Progress (may be nil) is told bytes that are stored, those that an earlier
	// attempt had stored included. It may be called concurrently.
	Progress func(bytes int64)
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64
	Version  string // differs after every replacement
	Modified time.Time
	// Age is the time since it was stored, by the store's own clock where that tells.
	// List does not tell.
	Age time.Duration
	// SHA256 is that of the content when Put stored it, in lower-case hexadecimal;
	// "" where the store does not tell. List never tells.
	SHA256 string

	checksum checksum // by the server's own account
	nonce    string   // of the Put that stored it
}

// Object is an open object.
type Object interface {
	io.ReaderAt // ErrChanged if the object was replaced since
	io.Closer
	Info() Info
}

// IsURL tells that a name is one of an object store rather than a path.
func IsURL(name string) bool { return strings.HasPrefix(name, scheme) }

const scheme = "s3://"

// Open opens the store that a URL or a path names. The key is what follows the
// bucket; for a path the folder is the store, and the key ".".
func Open(ctx context.Context, name string, s Settings) (Store, string, error) {
	switch local, err := isLocal(name); {
	case err != nil:
		return nil, "", err
	case name == "":
		return nil, "", fmt.Errorf("object store: the name is empty, want s3://BUCKET/NAME or a path")
	case local:
		return Local(name), ".", nil
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(name, scheme), "/")
	key = strings.TrimSuffix(key, "/")
	if bucket == "" || !fs.ValidPath(key) || key == "." {
		return nil, "", fmt.Errorf("object store %q: want s3://BUCKET/NAME", name)
	}
	store, err := s.bucket(ctx, bucket)
	if err != nil {
		return nil, "", fmt.Errorf("object store %s: %w", name, err)
	}
	return store, key, nil
}

// isLocal tells that a name is a path, and refuses names of stores that are not spoken to.
func isLocal(name string) (bool, error) {
	if !IsURL(name) && strings.Contains(name, "://") {
		return true, fmt.Errorf("object store %q: want s3://BUCKET/NAME or a path", name)
	}
	return !IsURL(name), nil
}

// Join is the key of a name in a folder.
func Join(folder, name string) string {
	if folder == "." || folder == "" {
		return name
	}
	return folder + "/" + name
}

// PutFile stores a local file.
func PutFile(ctx context.Context, s Store, key, path string, opt PutOptions) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return s.Put(ctx, key, io.NewSectionReader(f, 0, info.Size()), opt)
}

// Get reads a whole object of at most limit bytes and compares it with what the
// store knows about it.
func Get(ctx context.Context, s Store, key string, limit int64) (data []byte, err error) {
	for range 3 { // an object that others replace meanwhile is read again
		data, err = getObject(ctx, s, key, limit)
		if !errors.Is(err, ErrChanged) {
			break
		}
	}
	return data, err
}

func getObject(ctx context.Context, s Store, key string, limit int64) ([]byte, error) {
	o, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	info := o.Info()
	if info.Size > limit {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", s.URL(key), info.Size, limit)
	}
	data := make([]byte, info.Size)
	if _, err := o.ReadAt(data, 0); err != nil && err != io.EOF {
		return nil, err
	}
	if err := info.verify(bytes.NewReader(data)); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.URL(key), err)
	}
	return data, nil
}

// Download brings an object into a local file, atomically, replacing what is there.
func Download(ctx context.Context, s Store, key, path string) error {
	dir, err := tempdir.New(filepath.Dir(path), ".glimpse-download-")
	if err != nil {
		return err
	}
	defer dir.Remove()
	o, err := s.Open(ctx, key)
	if err != nil {
		return err
	}
	defer o.Close()
	p := partial{path: filepath.Join(dir.Path, "object"), object: o}
	if err := p.fetch(ctx, nil); err != nil {
		return fmt.Errorf("read %s: %w", s.URL(key), err)
	}
	return os.Rename(p.path, path)
}

// sha256Of is the SHA-256 of r's content.
func sha256Of(r io.Reader) ([]byte, error) {
	h := sha256.New()
	_, err := io.Copy(h, r)
	return h.Sum(nil), err
}
