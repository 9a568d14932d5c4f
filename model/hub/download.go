package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"glimpse/internal/bytesize"
	"glimpse/internal/filelock"
	"glimpse/internal/freedisk"
	"glimpse/internal/modelfile"
	"glimpse/internal/progress"
)

const (
	linkedETag = "X-Linked-Etag"
	linkedSize = "X-Linked-Size"
	repoCommit = "X-Repo-Commit"
)

// workers is the number of files that arrive at the same time.
const workers = 4

// remote is a file of a commit, as the hub describes it.
type remote struct {
	name, commit string
	etag         string // hash of the content: 64 digits of SHA-256, or 40 of Git's blob hash
	size         int64
}

// contentHash matches the ETags that say what a file holds.
var contentHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// newHash returns the hash whose sum is the ETag.
func (r remote) newHash() hash.Hash {
	if len(r.etag) == 2*sha256.Size {
		return sha256.New()
	}
	h := sha1.New() // Git's hash of a blob: this header, then the content
	fmt.Fprintf(h, "blob %d\x00", r.size)
	return h
}

func (r remote) path(id string) string {
	return (&url.URL{Path: "/" + id + "/resolve/" + r.commit + "/" + r.name}).EscapedPath()
}

// fetchAll brings files of a commit into its snapshot. Those that are there
// already are not asked for: a commit's files never change.
func (f *fetcher) fetchAll(ctx context.Context, commit string, names []string, log io.Writer) error {
	var files []remote
	for _, name := range names {
		if _, err := os.Stat(f.cache.pointer(commit, name)); err != nil {
			files = append(files, remote{name: name, commit: commit})
		}
	}
	if len(files) == 0 {
		return nil
	}
	err := eachParallel(ctx, len(files), func(ctx context.Context, i int) error { return f.describeRemote(ctx, &files[i]) })
	if err != nil {
		return err
	}
	total := int64(0)
	for _, r := range files {
		if r.size > math.MaxInt64-total {
			return fmt.Errorf("%s: the hub announces %d bytes, more than can be counted with the other files", r.name, r.size)
		}
		total += r.size
		if want := f.pinned(r.name); want != "" && len(r.etag) == len(want) && r.etag != want {
			return fmt.Errorf("%s: the hub has SHA-256 %s, want %s, which the name stands for", r.name, r.etag, want)
		}
	}
	need := total
	for _, r := range files { // what has arrived has its room
		if info, err := os.Stat(f.cache.blob(r.etag) + ".incomplete"); err == nil {
			need -= min(info.Size(), r.size)
		}
	}
	if err := freedisk.CheckRoom(f.settings.cache, need); err != nil {
		return err
	}
	fmt.Fprintf(log, "fetching %d files of %s, %s, into %s\n", len(files), f.repo, bytesize.FormatSize(total), f.settings.cache)
	p := progress.New(log, progress.Bytes, total)
	p.SetText(f.repo.String())
	defer p.Done()
	return eachParallel(ctx, len(files), func(ctx context.Context, i int) error {
		if err := f.fetch(ctx, files[i], p); err != nil {
			return fmt.Errorf("%s: %w", files[i].name, err)
		}
		return nil
	})
}

// eachParallel calls do for 0 to n-1, on several goroutines. The first error ends the
// others and is returned.
func eachParallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// describeRemote asks for hash and size.
func (f *fetcher) describeRemote(ctx context.Context, r *remote) error {
	err := f.client.retry(ctx, attempts, func() (bool, error) {
		resp, err := f.client.sendRequest(ctx, http.MethodHead, r.path(f.repo.id), "")
		if err != nil {
			return false, err
		}
		resp.Body.Close()
		return false, r.readHeaders(resp)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, f.explain(err))
	}
	return nil
}

// readHeaders takes hash and size from the answer, or from the redirects to it.
func (r *remote) readHeaders(resp *http.Response) error {
	etag, size := resp.Header.Get("ETag"), resp.ContentLength
	if resp.StatusCode >= 300 { // the length of the redirect itself
		size = -1
	}
	for step := resp; step != nil; step = step.Request.Response {
		if v := step.Header.Get(linkedETag); v != "" {
			etag = v
		}
		if v, err := strconv.ParseInt(step.Header.Get(linkedSize), 10, 64); err == nil {
			size = v
		}
		if c := step.Header.Get(repoCommit); c != "" && c != r.commit {
			return permanent{fmt.Errorf("the hub answered for commit %.60q, want %s", c, r.commit)}
		}
	}
	etag = strings.Trim(strings.TrimPrefix(etag, "W/"), `"`)
	if !contentHash.MatchString(etag) {
		return permanent{fmt.Errorf("ETag %.80q, want a SHA-256 or Git hash: without it the content cannot be checked", etag)}
	}
	if size < 0 {
		return permanent{errors.New("the hub does not tell the size")}
	}
	if limit := modelfile.Limit(r.name); limit > 0 && size > limit {
		return permanent{fmt.Errorf("the hub announces %d bytes, want at most %d", size, limit)}
	}
	r.etag, r.size = etag, size
	return nil
}

// fetch brings one file into the cache, checked, and links it.
func (f *fetcher) fetch(ctx context.Context, r remote, p *progress.Bar) error {
	blob := f.cache.blob(r.etag)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	unlock, err := filelock.Lock(ctx, f.cache.lockFile(r.etag), func() { p.SetText("waiting for another process to fetch " + r.name) })
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := os.Stat(blob); err == nil && info.Size() == r.size {
		p.Skip(r.size)
	} else if err := f.transferAll(ctx, r, blob, p); err != nil {
		return err
	}
	return f.cache.link(r.commit, r.name, r.etag)
}

// transferAll makes the blob from the part that has arrived before and the rest.
func (f *fetcher) transferAll(ctx context.Context, r remote, blob string, p *progress.Bar) error {
	path := blob + ".incomplete"
	for fresh := false; ; fresh = true {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		t := &transfer{remote: r, file: file, client: f.client, path: r.path(f.repo.id), bar: p}
		resumed, err := t.completeFile(ctx)
		if err = errors.Join(err, file.Close()); err != nil {
			return f.explain(err)
		}
		got := hex.EncodeToString(t.hash.Sum(nil))
		if got == r.etag {
			err := os.Rename(path, blob)
			if _, there := os.Stat(blob); there == nil && errors.Is(err, fs.ErrNotExist) {
				return nil // where locks do nothing, another process was faster
			}
			return err
		}
		// A resumed file may have begun with something else; a whole one may not.
		if err := os.Remove(path); err != nil {
			return err
		}
		p.Skip(-r.size)
		if !resumed || fresh {
			return fmt.Errorf("content has hash %s, want %s: the download was damaged, or the hub or a proxy on the way is broken", got, r.etag)
		}
	}
}

// transfer is one file that arrives.
type transfer struct {
	remote
	file   *os.File
	client *client
	path   string
	bar    *progress.Bar

	at   int64     // bytes that are there
	hash hash.Hash // of those
}

// completeFile completes the file and forces it to disk; resumed tells that it did not
// start empty.
func (t *transfer) completeFile(ctx context.Context) (resumed bool, err error) {
	if err := t.resume(ctx); err != nil {
		return false, err
	}
	resumed = t.at > 0
	if t.at < t.size {
		err = t.client.retry(ctx, attempts, func() (bool, error) {
			before := t.at
			err := t.receive(ctx)
			return t.at > before, err
		})
		if err != nil {
			return resumed, err
		}
	}
	return resumed, t.file.Sync()
}

// resume takes over what is in the file.
func (t *transfer) resume(ctx context.Context) error {
	t.at, t.hash = 0, t.newHash()
	info, err := t.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > t.size {
		return t.file.Truncate(0)
	}
	buffer := make([]byte, 1<<20)
	for t.at < info.Size() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := t.file.ReadAt(buffer[:min(int64(len(buffer)), info.Size()-t.at)], t.at)
		if err != nil && n == 0 {
			return err
		}
		t.hash.Write(buffer[:n])
		t.at += int64(n)
	}
	t.bar.Skip(t.at)
	return nil
}

// restart drops what is there.
func (t *transfer) restart() error {
	t.bar.Skip(-t.at)
	t.at, t.hash = 0, t.newHash()
	return t.file.Truncate(0)
}

// receive asks for the rest and takes what comes of it, in one connection. What
// has arrived counts even if the connection breaks.
func (t *transfer) receive(ctx context.Context) error {
	byteRange := ""
	if t.at > 0 {
		byteRange = fmt.Sprintf("bytes=%d-", t.at)
	}
	resp, err := t.client.sendRequest(ctx, http.MethodGet, t.path, byteRange)
	if status := (*statusError)(nil); errors.As(err, &status) && status.status == http.StatusRequestedRangeNotSatisfiable && t.at > 0 {
		return errors.Join(err, t.restart())
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK: // the whole file, even if a part was asked for
		if t.at > 0 {
			if err := t.restart(); err != nil {
				return permanent{err}
			}
		}
	case http.StatusPartialContent:
		if got, want := resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", t.at, t.size-1, t.size); got != want {
			return permanent{fmt.Errorf("got range %.80q, want %q", got, want)}
		}
	default:
		return permanent{fmt.Errorf("got status %s, want 200 or 206", resp.Status)}
	}
	buffer := make([]byte, 1<<18)
	for {
		n, err := resp.Body.Read(buffer)
		if int64(n) > t.size-t.at {
			return permanent{fmt.Errorf("got more than the %d bytes that the hub announced", t.size)}
		}
		// At its place, not at the end: where locks do nothing, as on some network file
		// systems, two processes then write the same bytes to the same places.
		if _, err := t.file.WriteAt(buffer[:n], t.at); err != nil {
			return permanent{err}
		}
		t.hash.Write(buffer[:n])
		t.at += int64(n)
		t.bar.Add(int64(n))
		switch {
		case err == io.EOF && t.at == t.size:
			return nil
		case err == io.EOF:
			return fmt.Errorf("the connection ended after %d of %d bytes; they are kept, the next run goes on from there", t.at, t.size)
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
	}
}
