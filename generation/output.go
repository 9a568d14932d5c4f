package generation

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/listing"
	"glimpse/internal/signals"
	"glimpse/internal/tempdir"
	"glimpse/jobs"
	"glimpse/model"
)

// errLeft is the error of a file whose last prompts are left to other processes.
var errLeft = errors.New("another process is working on it")

// output is a file of pairs that is made: the whole, or a shard in a folder or in a bucket:
//
//	pairs.jsonl                                   a finished file
//	.pairs.jsonl.work/                            where processes share out its prompts, until then
//	pairs-00001-of-00003.jsonl                    a finished shard
//	.work/pairs-00001-of-00003.jsonl/             the same of a shard
//	.settings.json (.work/.settings.json)         what all shards of the folder (or bucket) are made with
type output struct {
	job   *Job
	shard int
	name  string // in messages
	path  string // "" in a bucket
	store objectstore.Store
	key   string
	// settings is where the folder (or bucket) says what its shards are made with.
	settings string
	work     *jobs.Work

	header datasets.PairHeader
}

// outputs are the files that are to be made: all, or the one of a shard.
func (s *Job) outputs(ctx context.Context, only int) (files []*output, err error) {
	if s.Shards == 0 {
		dir, base := filepath.Split(s.Out)
		f := &output{job: s, name: s.Out, path: s.Out, store: objectstore.Local(cmp.Or(dir, ".")), key: base}
		if info, err := os.Stat(s.Out); err == nil && !info.Mode().IsRegular() {
			return []*output{f}, nil // a device or a FIFO, which nobody shares
		}
		f.work = jobs.Open(f.store, "."+base+".work", cmp.Or(dir, "."))
		return []*output{f}, nil
	}
	store, folder, err := objectstore.Open(ctx, s.Out, s.S3)
	if err != nil {
		return nil, err
	}
	dir, settings := s.Out, objectstore.Join(folder, datasets.SettingsName)
	if objectstore.IsURL(s.Out) {
		dir, settings = "", objectstore.Join(folder, workFolder+"/"+datasets.SettingsName)
	}
	for i := range s.Shards {
		if only >= 0 && i != only {
			continue
		}
		file := datasets.ShardName(i, s.Shards)
		f := &output{job: s, shard: i, name: fmt.Sprintf("shard %d of %d", i, s.Shards), store: store, key: objectstore.Join(folder, file), settings: settings}
		if dir != "" {
			f.path = filepath.Join(dir, file)
		}
		f.work = jobs.Open(store, objectstore.Join(folder, workFolder+"/"+file), dir)
		files = append(files, f)
	}
	return files, nil
}

const workFolder = ".work"

// enter makes sure that the one file of the output may be written, and that nothing of an interrupted one is lost.
func (f *output) enter(ctx context.Context) (leave func(), err error) {
	s := f.job
	for _, source := range s.Sources {
		s.Files.Input(source.Path)
	}
	if f.work == nil {
		return func() {}, s.Files.Check("--out", s.Out)
	}
	if _, err := os.Stat(filepath.Dir(f.path)); err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return f.work.Enter(ctx, f.path, func(alive bool) error {
		files := s.Files
		files.Replace = files.Replace || s.Resume // of a complete file, nothing is written over
		if err := files.Check("--out", s.Out); err != nil || alive {
			return err
		}
		agreed, err := f.work.Agreed(ctx)
		begun := agreed != nil
		if info, gone := os.Stat(datasets.PartialOf(s.Out)); gone == nil && info.Size() > 0 {
			begun = true
		}
		switch {
		case err != nil:
			return err
		case s.Files.Replace:
			return errors.Join(f.work.Discard(ctx), f.store.Delete(ctx, path.Base(filepath.ToSlash(datasets.PartialOf(s.Out)))))
		case begun && !s.Resume:
			return fmt.Errorf("%s was begun and interrupted: go on with --resume, or begin again with --replace", s.Out)
		}
		return nil
	})
}

// begunWith is the header of the file or folder that is gone on with, if any.
func (f *output) begunWith(ctx context.Context) (h datasets.PairHeader, found bool, err error) {
	s := f.job
	if f.work == nil || s.Shards == 0 && !s.Resume {
		return h, false, nil
	}
	var data []byte
	name := f.name
	if s.Shards == 0 {
		data, err = f.work.Agreed(ctx)
	} else {
		name = f.store.URL(f.settings)
		data, err = objectstore.Get(ctx, f.store, f.settings, datasets.MaxLine)
	}
	if err != nil && !errors.Is(err, objectstore.ErrNotExist) {
		return h, false, err
	}
	if data == nil { // of earlier versions, or finished
		switch {
		case s.Shards == 0:
			h, found = datasets.BegunFile(s.Out)
		case f.path != "":
			h, found = datasets.BegunShards(s.Out)
		}
		return h, found, nil
	}
	r, err := datasets.NewPairReader(name, bytes.NewReader(data))
	if err != nil {
		return h, false, err
	}
	return r.Header(), true, nil
}

// claimSettings makes the folder one of the header's settings, if it has none yet.
func (f *output) claimSettings(ctx context.Context, h datasets.PairHeader) error {
	for {
		data, err := objectstore.Get(ctx, f.store, f.settings, datasets.MaxLine)
		if err == nil {
			return h.CheckSettings(f.store.URL(f.settings), data)
		}
		if !errors.Is(err, objectstore.ErrNotExist) {
			return err
		}
		if f.path != "" {
			if err := datasets.SameAsShards(f.job.Out, h); err != nil {
				return err
			}
		}
		if data, err = h.Settings().Encode(); err != nil {
			return err
		}
		// Another may have been faster, and then says what the settings are.
		if err := f.store.Put(ctx, f.settings, bytes.NewReader(data), objectstore.PutOptions{New: true}); err != nil && !errors.Is(err, objectstore.ErrExists) {
			return err
		}
	}
}

// checkFinished is ErrFinished for a file that is there, nil for one that is not.
func (f *output) checkFinished(ctx context.Context, h datasets.PairHeader) error {
	if f.job.Shards == 0 && !f.job.Resume {
		return nil
	}
	o, err := f.store.Open(ctx, f.key)
	if errors.Is(err, objectstore.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer o.Close()
	r, err := datasets.NewPairReader(f.store.URL(f.key), io.NewSectionReader(o, 0, o.Info().Size))
	if err != nil {
		return err
	}
	return r.Finished(h)
}

// fill makes the file, with other processes.
func (f *output) fill(ctx context.Context, m *model.Model, h datasets.PairHeader, log io.Writer) error {
	if err := h.Validate(); err != nil {
		return err
	}
	if f.work == nil { // written through
		if f.job.Resume {
			return fmt.Errorf("--resume: %s is no regular file", f.name)
		}
		w, err := datasets.CreatePairs(f.path, h)
		if err != nil {
			return err
		}
		defer w.Abort()
		u := &units{output: f, m: m, sink: w, done: make(map[int]*unit)}
		if err := u.generate(ctx, log); err != nil {
			return err
		}
		u.total.say(log, f.name)
		return w.Commit()
	}
	if err := f.checkFinished(ctx, h); errors.Is(err, datasets.ErrFinished) {
		fmt.Fprintf(log, "%s is finished already\n", f.name)
		return f.work.Discard(ctx) // who finished it may have been killed before that
	} else if err != nil {
		return err
	}
	if f.job.Shards > 0 {
		leave, err := f.work.Enter(ctx, "", func(bool) error { return nil })
		if err != nil {
			return err
		}
		defer leave()
	}
	f.header = h
	old, err := f.adopt(ctx)
	if err != nil {
		return err
	}
	if f.work.Settings, err = f.header.Encode(); err != nil {
		return err
	}
	f.work.OnBegin = f.agree
	u := &units{output: f, m: m, total: result{Pairs: old}, before: len(old)}
	if n := len(old); n > 0 {
		u.last = old[n-1].ID
		fmt.Fprintf(log, "%s goes on after %s\n", f.name, listing.Count(n, "sample"))
	}
	err = u.generate(ctx, log)
	over := u.share.Over() || errors.Is(err, jobs.ErrOver)
	switch {
	case over:
	case err != nil && f.job.Shards == 0 && u.written > 0:
		err = fmt.Errorf("%d finished samples of %s are kept, and the same command with --resume goes on: %w", u.written, f.name, err)
		if ctx.Err() != nil {
			return signals.Resumable(err)
		}
		return err
	case err != nil:
		return err
	case u.share.Left() > 0:
		return errLeft
	default:
		done, err := f.work.Finish(ctx, func() error { return f.join(ctx, u, log) })
		if over = !done; err != nil {
			return err
		}
	}
	if over {
		fmt.Fprintf(log, "%s is finished by another process\n", f.name)
	}
	return nil
}

// agree takes the header of the process that came first.
func (f *output) agree(_ context.Context, first []byte) error {
	if first == nil {
		return nil
	}
	r, err := datasets.NewPairReader(f.name, bytes.NewReader(first))
	if err != nil {
		return err
	}
	if !r.Header().Same(f.header) {
		return fmt.Errorf("%s: was begun with other settings: %s", f.name, r.Header().Differences(f.header))
	}
	f.header = r.Header()
	return nil
}

// join makes the file of what there was and the results of its units.
func (f *output) join(ctx context.Context, u *units, log io.Writer) error {
	to := f.path
	if to == "" {
		dir, err := tempdir.New("", "glimpse-join-")
		if err != nil {
			return err
		}
		defer dir.Remove()
		to = filepath.Join(dir.Path, path.Base(f.key))
	}
	w, err := datasets.CreatePairs(to, f.header)
	if err != nil {
		return err
	}
	defer w.Abort()
	total := result{}
	add := func(r *result) error {
		for _, p := range r.Pairs {
			if err := w.Write(p); err != nil {
				return err
			}
		}
		total.add(r)
		return nil
	}
	if err := add(&u.total); err != nil {
		return err
	}
	if err := f.work.Results(ctx, func(_ string, text []byte) error {
		r := new(result)
		if err := json.Unmarshal(text, r); err != nil {
			return err
		}
		return add(r)
	}); err != nil {
		return err
	}
	err = total.checkBad(f.name)
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		return errors.Join(err, f.work.Discard(ctx))
	}
	if f.path == "" {
		if err := objectstore.PutFile(ctx, f.store, f.key, to, objectstore.PutOptions{New: true}); err != nil && !errors.Is(err, objectstore.ErrExists) {
			return err
		}
	}
	total.say(log, f.name)
	return f.removeEarlier(ctx)
}

// adopt are the pairs that an earlier version has left of the file: in one that it was writing, and in a bucket in
// parts of it.
func (f *output) adopt(ctx context.Context) ([]datasets.Pair, error) {
	name, data, err := datasets.PartialOf(f.path), []byte(nil), error(nil)
	if f.path == "" {
		name = f.name
		data, err = f.readParts(ctx)
	} else if data, err = os.ReadFile(name); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if err != nil || data == nil {
		return nil, err
	}
	var pairs []datasets.Pair
	f.header, pairs, err = datasets.ReadPartial(name, data, f.header)
	return pairs, err
}

// partPrefix begins the names of parts of a shard that earlier versions have stored, by their first bytes.
const partPrefix = "part-"

// readParts reads the parts, as far as they follow each other.
func (f *output) readParts(ctx context.Context) (all []byte, err error) {
	list, err := f.inWork(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		digits, ok := strings.CutPrefix(path.Base(i.Key), partPrefix)
		if !ok {
			continue
		}
		if from, err := strconv.Atoi(digits); err != nil || from != len(all) {
			break
		}
		data, err := objectstore.Get(ctx, f.store, i.Key, datasets.MaxLine+maxPart)
		if errors.Is(err, objectstore.ErrDamaged) || errors.Is(err, objectstore.ErrNotExist) {
			break // its pairs are made again
		}
		if err != nil {
			return nil, err
		}
		all = append(all, data...)
	}
	return all, nil
}

// maxPart bounds a part of a shard.
const maxPart = 8 << 20

// inWork are the objects that earlier versions have stored of a shard: parts, and claims.
func (f *output) inWork(ctx context.Context) ([]objectstore.Info, error) {
	if f.path != "" {
		return nil, nil
	}
	folder, name := path.Split(f.key)
	list, err := f.store.List(ctx, objectstore.Join(strings.TrimSuffix(folder, "/"), workFolder+"/"+name))
	return slices.DeleteFunc(list, func(i objectstore.Info) bool { return !strings.Contains(path.Base(i.Key), "-") }), err
}

// removeEarlier removes what an earlier version has left of the file.
func (f *output) removeEarlier(ctx context.Context) error {
	list, err := f.inWork(ctx)
	for _, i := range list {
		err = errors.Join(err, f.store.Delete(ctx, i.Key))
	}
	if f.path != "" {
		if gone := os.Remove(datasets.PartialOf(f.path)); gone != nil && !errors.Is(gone, os.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	return err
}
