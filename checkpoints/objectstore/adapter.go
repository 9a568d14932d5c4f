package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/gguf"
	"glimpse/internal/progress"
	"glimpse/internal/stdin"
)

// ReadAdapter reads and verifies the adapter that a path or URL names, as
// checkpoints.ReadAdapter does.
func ReadAdapter(ctx context.Context, name string, s Settings) (*checkpoints.Adapter, error) {
	if local, err := isLocal(name); err != nil {
		return nil, err
	} else if local {
		return checkpoints.ReadAdapter(name)
	}
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return nil, err
	}
	a, err := checkpoints.ReadAdapterFS(FS(ctx, store, folder), ".")
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", name, err)
	}
	return a, nil
}

// CheckAdapterTarget tells whether WriteAdapter could write there, so that a long run
// need not fail at its end.
func CheckAdapterTarget(ctx context.Context, name string, replace bool, s Settings) error {
	if local, err := isLocal(name); err != nil {
		return err
	} else if local {
		return checkpoints.CheckTarget(name, replace)
	}
	if replace {
		return fmt.Errorf("adapter %s: what is in an object store is never replaced, because its readers would see a mixture; choose another name", name)
	}
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return err
	}
	list, err := store.List(ctx, folder)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list, func(i Info) bool { return path.Base(i.Key) == checkpoints.AdapterManifest }) {
		return fmt.Errorf("adapter %s: %w", name, ErrExists)
	}
	return nil
}

// WriteAdapter writes an adapter to a local folder or an object store, whole or not
// at all (see Publish). Created is false where exactly this adapter was there
// already. Progress goes to log.
func WriteAdapter(ctx context.Context, name string, a *checkpoints.Adapter, replace bool, s Settings, log io.Writer) (created bool, err error) {
	if local, err := isLocal(name); err != nil {
		return false, err
	} else if local {
		if same, err := checkpoints.SameAdapter(name, a); same || err != nil {
			return false, err
		}
		return true, checkpoints.WriteAdapter(name, a, replace)
	}
	files, err := checkpoints.EncodeAdapter(a)
	if err != nil {
		return false, err
	}
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return false, err
	}
	var total int64
	for _, f := range files {
		total += int64(len(f.Data))
	}
	bar := progress.New(log, progress.Bytes, total)
	bar.SetText(name)
	defer bar.Done()
	created, err = Publish(ctx, store, folder, files, bar.Add)
	if err != nil {
		return false, fmt.Errorf("write adapter %s: %w", name, err)
	}
	return created, nil
}

// LocalModel returns the folder of a model, or its GGUF file: a path as it is, and for a URL the
// copy in the cache, which is made or brought up to date first. A split model's other files come
// with the one that is named.
func LocalModel(ctx context.Context, name string, s Settings, log io.Writer) (string, error) {
	if local, err := isLocal(name); local {
		return name, err
	}
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(folder, ".gguf") {
		cache, done := shownCache(name, log)
		defer done()
		file, err := cache.File(ctx, store, folder, gguf.Parts(path.Base(folder))...)
		if err != nil {
			return "", fmt.Errorf("model %s: %w", name, err)
		}
		return file, nil
	}
	list, err := store.List(ctx, folder)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("model %s: there is no object below that name: %w", name, ErrNotExist)
	}
	names, err := checkpoints.WeightFiles(FS(ctx, store, folder))
	if err != nil {
		for _, i := range list {
			if strings.HasSuffix(i.Key, ".gguf") {
				err = fmt.Errorf("%w; its GGUF files are named with the folder, as %s", err, store.URL(i.Key))
				break
			}
		}
		return "", fmt.Errorf("model %s: %w", name, err)
	}
	for _, i := range list { // configuration, tokenizer, chat template, index of the weights
		if base := path.Base(i.Key); (strings.HasSuffix(base, ".json") || strings.HasSuffix(base, ".jinja")) && !strings.HasPrefix(base, ".") {
			names = append(names, base)
		}
	}
	cache, done := shownCache(name, log)
	dir, err := cache.Folder(ctx, store, folder, names)
	done()
	if err != nil {
		return "", fmt.Errorf("model %s: %w", name, err)
	}
	return dir, nil
}

// shownCache is the cache with a bar, which done ends.
func shownCache(name string, log io.Writer) (c Cache, done func()) {
	var bar *progress.Bar
	show := func(bytes, missing int64) {
		if missing > 0 {
			bar = progress.New(log, progress.Bytes, missing)
			bar.SetText(name)
		}
		bar.Add(bytes)
	}
	return Cache{Progress: show}, func() {
		if bar != nil {
			bar.Done()
		}
	}
}

// LocalFile returns the path of a file: a path as it is, and for a URL the copy in the
// cache, which is made or brought up to date first.
func LocalFile(ctx context.Context, name string, s Settings, log io.Writer) (string, error) {
	if local, err := isLocal(name); local {
		return name, err
	}
	store, key, err := Open(ctx, name, s)
	if err != nil {
		return "", err
	}
	cache, done := shownCache(name, log)
	defer done()
	return cache.File(ctx, store, key)
}

// LocalData returns the path of a file or folder: a path as it is, for a URL the copy
// in the cache, which is made or brought up to date first, and for "-" a file with what standard
// input gives. Of a folder it is what lies
// directly in it, hidden names left out. ErrNotExist if there is nothing of that name.
func LocalData(ctx context.Context, name string, s Settings, log io.Writer) (string, error) {
	if name == stdin.Name {
		return stdin.Standard.Path(ctx, os.Stdin)
	}
	if !IsURL(name) {
		return LocalFile(ctx, name, s, log)
	}
	store, key, err := Open(ctx, name, s)
	if err != nil {
		return "", err
	}
	if _, err := store.Stat(ctx, key); !errors.Is(err, ErrNotExist) {
		if err != nil {
			return "", err
		}
		return LocalFile(ctx, name, s, log)
	}
	files, err := folderFiles(ctx, name, "", s, log)
	if err != nil {
		return "", err
	}
	return filepath.Dir(files[0]), nil
}

// LocalFiles returns the paths of a folder's files whose names end so, by name. They
// are copies in the cache, which are made or brought up to date first, compared with
// what the store knows about the objects. The name is a URL; one that ends so itself
// is that of a single file.
func LocalFiles(ctx context.Context, name, suffix string, s Settings, log io.Writer) ([]string, error) {
	if strings.HasSuffix(name, suffix) {
		file, err := LocalFile(ctx, name, s, log)
		return []string{file}, err
	}
	return folderFiles(ctx, name, suffix, s, log)
}

func folderFiles(ctx context.Context, name, suffix string, s Settings, log io.Writer) ([]string, error) {
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return nil, err
	}
	list, err := store.List(ctx, folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range list {
		if base := path.Base(i.Key); strings.HasSuffix(base, suffix) && !strings.HasPrefix(base, ".") {
			names = append(names, base)
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s: got a name with no %s directly below it, want a file or a folder of files: %w", name, strings.TrimSpace(suffix+" file"), ErrNotExist)
	}
	cache, done := shownCache(name, log)
	defer done()
	dir, err := cache.Folder(ctx, store, folder, names)
	if err != nil {
		return nil, err
	}
	for i, base := range names {
		names[i] = filepath.Join(dir, base)
	}
	return names, nil
}

// FetchCheckpoint brings the newest checkpoint of a folder of backups that check
// accepts to a local file, and returns its step. Those that are damaged are reported
// and passed over. ErrNotExist if there is none at all.
func FetchCheckpoint(ctx context.Context, name, to string, s Settings, check func(path string) error, log io.Writer) (int, error) {
	store, folder, err := Open(ctx, name, s)
	if err != nil {
		return 0, err
	}
	all, err := ListBackups(ctx, store, folder)
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, b := range all {
		err := Download(ctx, store, b.Key, to)
		if err == nil {
			err = check(to)
		}
		if err == nil {
			return b.Step, nil
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, checkpoints.ErrCorrupt) {
			return 0, err
		}
		fmt.Fprintf(log, "%v\n", err)
		failed = append(failed, err)
	}
	return 0, errors.Join(failed...)
}
