package serving

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
)

// adapterInfo is an adapter as the API tells it.
type adapterInfo struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Policy string `json:"policy"`
	SHA256 string `json:"sha256"`
	From   string `json:"from,omitempty"` // administrators are told
}

func (s *Server) listAdapters(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	loaded := s.model.Adapters()
	s.mu.Unlock()
	all := []adapterInfo{}
	for _, a := range loaded {
		if !s.administers(r) {
			a.From = ""
		}
		all = append(all, adapterInfo(a))
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": all})
	return nil
}

// loads are the adapters that are being loaded.
type loads struct {
	ctx   context.Context // of all of them
	stop  context.CancelFunc
	going sync.WaitGroup
	mu    sync.Mutex
	names map[string]bool
}

func newLoads() *loads {
	l := &loads{names: make(map[string]bool)}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// beginLoad is false where an adapter of the name is being loaded, or all is to stop.
func (l *loads) beginLoad(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.names[name] || l.ctx.Err() != nil {
		return false
	}
	l.names[name] = true
	l.going.Add(1)
	return true
}

func (l *loads) endLoad(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.names, name)
	l.going.Done()
}

// waitLoads waits until nothing is being loaded any more.
func (l *loads) waitLoads() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.going.Wait()
}

// loadAdapter loads an adapter while others answer: no lock that they need is held before its weights are there. Of two that load the
// same name at once the second one is refused; one whose client is gone, or that takes too long, is given up.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) error {
	var a struct {
		Name    string  `json:"name"`
		From    string  `json:"from"`
		Unknown unknown `json:",embed"`
	}
	if err := readJSON(r, &a); err != nil {
		return err
	}
	worked(r, 0) // a load may take minutes
	if a.From == "" {
		return refuse("from", "is missing: want a folder or s3:// name of an adapter")
	}
	if a.Name == "" {
		a.Name = engine.AdapterName(a.From)
	} else if err := checkAdapterName(a.Name); err != nil {
		return err
	}
	if !s.loads.beginLoad(a.Name) {
		return failure(http.StatusConflict, invalidRequest, "adapter_loading", "an adapter named %q is being loaded", a.Name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), s.AdapterTimeout)
	defer cancel()
	defer context.AfterFunc(s.loads.ctx, cancel)()
	type outcome struct {
		err      error
		panicked any
	}
	loaded := make(chan outcome, 1)
	var mu sync.Mutex // guards what follows
	gone := false     // whoever waited for it
	go func() {       // which a disk that does not answer may hold up
		var found engine.LoadedAdapters
		var out outcome
		func() {
			defer func() { out.panicked = recover() }()
			found, out.err = s.openAdapters(ctx, a.Name, a.From)
		}()
		mu.Lock()
		defer mu.Unlock()
		if out.err == nil && out.panicked == nil && !gone {
			s.mu.Lock()
			out.err = s.model.AddAdapters(found)
			s.mu.Unlock()
		}
		s.loads.endLoad(a.Name) // before the client is told, who may load it anew
		loaded <- out
	}()
	var out outcome
	select {
	case out = <-loaded:
	case <-ctx.Done():
		mu.Lock()
		select {
		case out = <-loaded:
		default:
			gone, out.err = true, ctx.Err()
		}
		mu.Unlock()
	}
	if out.panicked != nil { // on the goroutine whose panics end a request alone
		panic(out.panicked)
	}
	err := out.err
	if err != nil && ctx.Err() != nil { // the error is a consequence of it
		err = ctx.Err()
	}
	if err != nil {
		s.Log.Warn("adapter not loaded", "name", a.Name, "from", a.From, "error", err.Error())
		return s.notLoaded(a.From, err)
	}
	s.Log.Info("adapter loaded", "name", a.Name, "from", a.From)
	return s.listAdapters(w, r)
}

// notLoaded is why an adapter was not loaded, as a client is told.
func (s *Server) notLoaded(from string, err error) error {
	switch {
	case errors.Is(err, engine.ErrAdapterName):
		return failure(http.StatusConflict, invalidRequest, "adapter_exists", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return failure(http.StatusGatewayTimeout, serverError, "adapter_timeout", "from: %.200q was not read within %v", from, s.AdapterTimeout)
	case s.loads.ctx.Err() != nil:
		return errStopped
	case hidden(err):
		return refuse("from", "got %.200q, want the folder or s3:// name of an adapter below one that the server was started with (--adapter-dir)", from)
	}
	return refuse("from", "%v", err)
}

// unloadAdapter forgets an adapter. Answers that use it go on. That of requests that name none stays.
func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	s.mu.Lock()
	var err error
	if s.standard.Settings.Resources.Adapter != nil && s.standard.Adapter == name {
		err = failure(http.StatusConflict, invalidRequest, "adapter_in_use", "the adapter %q is that of requests that name none, under %s: it stays as long as the server runs", name, s.standard.Configured.Name)
	} else if err = s.model.RemoveAdapters(name); err == nil {
		maps.DeleteFunc(s.policies, func(_ evictionChoice, p engine.Policy) bool {
			return p.Settings.Resources.Adapter != nil && p.Adapter == name
		})
	}
	s.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return failure(http.StatusNotFound, invalidRequest, "adapter_not_found", "%v", err)
	}
	if err != nil {
		return err
	}
	s.Log.Info("adapter unloaded", "name", name)
	return s.listAdapters(w, r)
}

// checkAdapterName refuses names that requests could not say.
func checkAdapterName(name string) error {
	if len(name) > maxAdapterName || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
	}) || strings.Trim(name, ".") == "" {
		return refuse("name", "got %.200q, want letters, digits, dots, dashes and underscores, at most %d bytes", name, maxAdapterName)
	}
	return nil
}

const maxAdapterName = 100

// DefaultAdapterTimeout is how long an adapter may take to be loaded.
const DefaultAdapterTimeout = 5 * time.Minute

// errNoPlace: no adapter may be loaded from there, or there is none.
var errNoPlace = errors.New("no adapter that may be loaded")

// hidden tells of errors that would say what else lies on the server's disks and buckets: what is not there, what may not be read
// and what lies elsewhere are one.
func hidden(err error) bool {
	return errors.Is(err, errNoPlace) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, objectstore.ErrDenied) ||
		errors.Is(err, checkpoints.ErrNotAdapter) || errors.As(err, new(*fs.PathError))
}

// checkAdapterDirs is an error unless adapters may be loaded from below all of them.
func checkAdapterDirs(dirs []string) error {
	for _, dir := range dirs {
		if objectstore.IsURL(dir) {
			if !fs.ValidPath(strings.TrimSuffix(strings.TrimPrefix(dir, "s3://"), "/")) {
				return fmt.Errorf("%s: want s3://BUCKET or s3://BUCKET/NAME", dir)
			}
			continue
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			return err
		}
		root.Close()
	}
	return nil
}

// openAdapters loads what lies at a place that the operator has named.
func (s *Server) openAdapters(ctx context.Context, name, from string) (engine.LoadedAdapters, error) {
	if from == engine.Shipped {
		return s.model.LoadAdaptersIn(ctx, nil, name, from)
	}
	if objectstore.IsURL(from) {
		if !slices.ContainsFunc(s.AdapterDirs, func(dir string) bool { return objectstore.IsURL(dir) && urlBelow(dir, from) }) {
			return nil, errNoPlace
		}
		store, folder, err := objectstore.Open(ctx, from, s.S3)
		if err != nil {
			return nil, err
		}
		return s.model.LoadAdaptersIn(ctx, objectstore.FS(ctx, store, folder), name, from)
	}
	for _, dir := range s.AdapterDirs {
		for _, below := range pathsBelow(dir, from) {
			folder, done, err := openBelow(dir, below)
			if err != nil {
				continue
			}
			defer done()
			return s.model.LoadAdaptersIn(ctx, folder, name, from)
		}
	}
	return nil, errNoPlace
}

// urlBelow tells that an object store's name is that of a folder or lies below it, by whole names between slashes.
func urlBelow(dir, name string) bool {
	dir, name = strings.TrimSuffix(dir, "/"), strings.TrimSuffix(name, "/")
	return fs.ValidPath(strings.TrimPrefix(name, "s3://")) && (name == dir || strings.HasPrefix(name, dir+"/"))
}

// pathsBelow are the paths below a folder that a name may mean: one from the folder on, or one from where the server was started.
func pathsBelow(dir, name string) (all []string) {
	if filepath.IsLocal(name) {
		all = append(all, name)
	}
	from, err := filepath.Abs(dir)
	if err != nil {
		return all
	}
	if to, err := filepath.Abs(name); err == nil {
		if below, err := filepath.Rel(from, to); err == nil && filepath.IsLocal(below) {
			all = append(all, below)
		}
	}
	return all
}

// openBelow opens a folder below another, which no link leads out of, nor one of its own files.
func openBelow(dir, below string) (folder fs.FS, done func(), err error) {
	if objectstore.IsURL(dir) {
		return nil, nil, errNoPlace
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	sub, err := root.OpenRoot(below)
	if err != nil {
		return nil, nil, err
	}
	return sub.FS(), func() { sub.Close() }, nil
}
