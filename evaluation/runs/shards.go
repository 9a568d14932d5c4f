package runs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
	"glimpse/internal/filelock"
	"glimpse/internal/listing"
	"glimpse/internal/outputs"
	"glimpse/internal/regularfile"
	"glimpse/internal/tempdir"
	"glimpse/internal/yamlconfig"
)

// errTaken is that another worker is at a shard.
var errTaken = errors.New("another worker has it")

// place is where shards are: a folder that all workers see, or one of a bucket. Every shard is
// the folder of a run of its own.
type place interface {
	// finished tells that a shard has been measured.
	finished(ctx context.Context, name string) (bool, error)
	// take makes a shard this worker's, or is errTaken. Work is done in dir and ends with
	// work; done lets go, and keeps what there is.
	take(ctx context.Context, name string) (dir string, work context.Context, done func() error, err error)
	// bring makes a finished shard's files readable.
	bring(ctx context.Context, name string) (dir string, err error)
	// deliver puts files of dir in the place of the whole run.
	deliver(ctx context.Context, dir string, names []string) error
	close()
}

// shardName names the folder of a shard.
func shardName(i, n int) string { return fmt.Sprintf("shard-%05d-of-%05d", i, n) }

// runShards measures the shards that are free, or the one that was asked for, and joins
// them when all are finished.
func (j *Job) runShards(ctx context.Context, plans []plan, log io.Writer) (*Outcome, error) {
	fail := func(err error) (*Outcome, error) { return nil, fmt.Errorf("eval: %w", err) }
	only, count, err := outputs.ShardOf(j.Shard, j.Shards)
	if err != nil {
		return fail(err)
	}
	count = max(count, 1)
	at, err := j.place(ctx, log)
	if err != nil {
		return fail(err)
	}
	defer at.close()
	taken := 0
	for i := range count {
		if only >= 0 && i != only {
			continue
		}
		switch err := j.runShard(ctx, at, i, count, plans, log); {
		case errors.Is(err, errTaken):
			taken++
		case err != nil:
			return nil, err
		}
	}
	for i := range count {
		done, err := at.finished(ctx, shardName(i, count))
		if err != nil {
			return fail(err)
		}
		if !done {
			fmt.Fprintf(log, "not all of %d shards are finished, %d are with other workers; who finishes the last one joins them\n", count, taken)
			return nil, nil
		}
	}
	return j.joinShards(ctx, at, count, plans)
}

// runShard measures one shard, unless it is finished.
func (j *Job) runShard(ctx context.Context, at place, i, n int, plans []plan, log io.Writer) error {
	name := shardName(i, n)
	if done, err := at.finished(ctx, name); err != nil || done {
		return err
	}
	dir, work, done, err := at.take(ctx, name)
	if err != nil {
		return err
	}
	part := *j
	part.Out, part.shard, part.shards = dir, i, n
	_, err = os.Stat(filepath.Join(dir, ConfigFile))
	part.Resume = err == nil
	part.agreeing = func() error { return j.agree(ctx) }
	fmt.Fprintf(log, "shard %d of %d\n", i, n)
	_, err = part.runFolder(work, plans, log)
	j.model = part.model
	return errors.Join(err, done())
}

// joinShards makes the run of its shards.
func (j *Job) joinShards(ctx context.Context, at place, n int, plans []plan) (*Outcome, error) {
	fail := func(err error) (*Outcome, error) { return nil, fmt.Errorf("eval: %w", err) }
	var whole Stored
	var about Environment
	for i := range n {
		dir, err := at.bring(ctx, shardName(i, n))
		if err != nil {
			return fail(err)
		}
		whole.Environment = nil
		if err = whole.readFolder(dir, math.MaxInt); err == nil && whole.Environment == nil {
			err = fmt.Errorf("no %s or no %s", PredictionsFile, EnvironmentFile)
		}
		if err == nil && whole.Damage != "" {
			err = errors.New(whole.Damage)
		}
		if own := whole.Environment; err == nil && i > 0 {
			err = about.sameModels(own)
			about.accept(own.Accepted)
		} else if err == nil {
			about = *own
		}
		if err != nil {
			return fail(fmt.Errorf("%s: %w", shardName(i, n), err))
		}
	}
	models := listing.Map(about.Models, func(m AboutModel) string { return m.Name })
	tasks := listing.Map(plans, func(p plan) string { return p.name })
	out, err := sumUp(whole.Predictions, whole.Timings, models, tasks)
	if err != nil {
		return fail(err)
	}
	out.nameDevices(about.deviceOf)
	if len(out.Rows) == 0 {
		return out, fmt.Errorf("eval: none of %d samples could be measured: %s", out.Samples, out.First)
	}
	config, err := j.config()
	if err != nil {
		return fail(err)
	}
	dir, err := tempdir.New("", "glimpse-join-")
	if err != nil {
		return fail(err)
	}
	defer dir.Remove()
	f := &folder{path: dir.Path, about: about}
	if err := errors.Join(f.writeFile(ConfigFile, config), f.files(out.Rows, whole.Predictions, whole.Timings, sortedKept(whole.Kept, models, tasks))); err != nil {
		return fail(err)
	}
	if err := at.deliver(ctx, dir.Path, []string{ConfigFile, EnvironmentFile, TimingsFile, KeptFile, PredictionsFile, MetricsFile}); err != nil {
		return fail(err)
	}
	return out, nil
}

// readFinished reads predictions that must be whole.
func readFinished(path string) ([]*evaluation.Prediction, error) {
	in, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	all, _, damage, err := evaluation.ReadPredictions(in, nil)
	if err = errors.Join(err, damage); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// maxJSON bounds the files of a run that are one JSON value.
const maxJSON = 256 << 20

// place opens the output, whose settings must be the job's if it has any yet.
func (j *Job) place(ctx context.Context, log io.Writer) (place, error) {
	store, name, err := objectstore.Open(ctx, j.Out, j.S3)
	if err != nil {
		return nil, err
	}
	at := output{store, name}
	begun, err := j.settled(ctx, at, log)
	if err != nil {
		return nil, err
	}
	if objectstore.IsURL(j.Out) {
		dir, err := tempdir.New("", "glimpse-eval-")
		if err != nil {
			return nil, err
		}
		return &stored{output: at, dir: dir, save: saveEvery}, nil
	}
	f := &folder{path: j.Out}
	if _, err := os.Stat(f.file(ConfigFile)); err == nil && !begun {
		return nil, fmt.Errorf("--out: %s holds a run without shards, want another folder", j.Out)
	}
	if f.made, err = makeFolders(j.Out); err != nil {
		return nil, fmt.Errorf("--out: %w", err)
	}
	return shared{f, at}, nil
}

// settled makes sure that the settings that are there are the job's; begun is false where there are none yet.
func (j *Job) settled(ctx context.Context, at output, log io.Writer) (begun bool, err error) {
	old, err := objectstore.Get(ctx, at.store, objectstore.Join(at.folder, settingsFile), yamlconfig.MaxBytes)
	if errors.Is(err, objectstore.ErrNotExist) {
		return false, nil
	}
	var config []byte
	if err == nil {
		config, err = j.config()
	}
	note := ""
	if err == nil {
		note, err = j.continues(old, config)
	}
	if err != nil {
		return false, fmt.Errorf("--out: %s: %w", j.Out, err)
	}
	if note != "" {
		fmt.Fprintln(log, note)
	}
	return true, nil
}

// agree writes the settings when the first sample of a shard is measured, or makes sure that they are those
// that another worker has written: all workers measure the same.
func (j *Job) agree(ctx context.Context) error {
	config, err := j.config()
	if err != nil {
		return err
	}
	store, name, err := objectstore.Open(ctx, j.Out, j.S3)
	if err != nil {
		return err
	}
	err = store.Put(ctx, objectstore.Join(name, settingsFile), bytes.NewReader(config), objectstore.PutOptions{New: true})
	if errors.Is(err, objectstore.ErrExists) {
		_, err = j.settled(ctx, output{store, name}, io.Discard)
	}
	return err
}

// settingsFile is the configuration that all shards are measured with.
const settingsFile = ".settings.yaml"

// output is where the whole run and its shards' files come to lie.
type output struct {
	store  objectstore.Store
	folder string
}

func (o output) objectKey(name, file string) string {
	return objectstore.Join(o.folder, name+"/"+file)
}

func (o output) finished(ctx context.Context, name string) (bool, error) {
	_, err := o.store.Stat(ctx, o.objectKey(name, MetricsFile))
	if errors.Is(err, objectstore.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (o output) deliver(ctx context.Context, dir string, names []string) error {
	for _, name := range names {
		if err := objectstore.PutFile(ctx, o.store, objectstore.Join(o.folder, name), filepath.Join(dir, name), objectstore.PutOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// shared is a folder that all workers see. The lock of a shard's run is its claim, which a
// worker that dies lets go.
type shared struct {
	*folder
	output
}

func (s shared) take(ctx context.Context, name string) (string, context.Context, func() error, error) {
	dir := filepath.Join(s.path, name)
	lock := filepath.Join(s.path, "."+name+".lock")
	unlock, free, err := filelock.TryLock(lock)
	if err != nil {
		return "", nil, nil, fmt.Errorf("eval: --out: %w", err)
	}
	if !free {
		return "", nil, nil, errTaken
	}
	return dir, ctx, func() error {
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // nothing was measured
			os.Remove(lock) // before it is let go, so that nobody holds the lock of a file without a name
		}
		unlock()
		return nil
	}, nil
}

func (s shared) bring(_ context.Context, name string) (string, error) {
	return filepath.Join(s.path, name), nil
}

// saveEvery is the time between uploads of a shard's work, leaveWithin what a worker that
// is stopped may take for the last one.
const (
	saveEvery   = 30 * time.Second
	leaveWithin = 20 * time.Second
)

// stored is a folder of a bucket. A shard is worked on in a local copy under a claim, and what
// there is goes to the bucket from time to time.
type stored struct {
	output
	dir    *tempdir.Dir
	claims objectstore.Claims
	save   time.Duration
}

func (s *stored) take(ctx context.Context, name string) (string, context.Context, func() error, error) {
	claim, err := s.claims.Take(ctx, s.store, objectstore.Join(s.folder, ".work/"+name))
	if errors.Is(err, objectstore.ErrClaimed) {
		return "", nil, nil, errTaken
	}
	if err != nil {
		return "", nil, nil, err
	}
	dir := filepath.Join(s.dir.Path, name)
	err = os.MkdirAll(dir, 0o777)
	for _, file := range []string{ConfigFile, EnvironmentFile, KeptFile, partialFile} { // of who had it before
		if err == nil {
			if err = objectstore.Download(ctx, s.store, s.objectKey(name, file), filepath.Join(dir, file)); errors.Is(err, objectstore.ErrNotExist) {
				err = nil
			}
		}
	}
	if err != nil {
		claim.Release(context.WithoutCancel(ctx))
		return "", nil, nil, err
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // what fails is tried again, and at the end
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(s.save):
				s.sendFiles(claim.Context(), name, dir, ConfigFile, EnvironmentFile, KeptFile, partialFile)
			}
		}
	}()
	return dir, claim.Context(), func() error {
		close(stop)
		<-stopped
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		if err := claim.Held(leave); err != nil {
			return fmt.Errorf("eval: %s: %w", s.store.URL(s.objectKey(name, "")), err)
		}
		err := s.sendFiles(leave, name, dir, ConfigFile, EnvironmentFile, KeptFile, partialFile, TimingsFile, PredictionsFile, MetricsFile)
		if _, statErr := os.Stat(filepath.Join(dir, MetricsFile)); err == nil && statErr == nil {
			err = s.store.Delete(leave, s.objectKey(name, partialFile))
		}
		return errors.Join(err, claim.Release(leave))
	}, nil
}

// sendFiles stores the files of a shard that are there, in the order given.
func (s *stored) sendFiles(ctx context.Context, name, dir string, files ...string) error {
	for _, file := range files {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = s.store.Put(ctx, s.objectKey(name, file), bytes.NewReader(data), objectstore.PutOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *stored) bring(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(s.dir.Path, "joined", name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	for _, file := range []string{ConfigFile, EnvironmentFile, TimingsFile, KeptFile, PredictionsFile} {
		if err := objectstore.Download(ctx, s.store, s.objectKey(name, file), filepath.Join(dir, file)); err != nil && !(file == KeptFile && errors.Is(err, objectstore.ErrNotExist)) {
			return "", err
		}
	}
	return dir, nil
}

func (s *stored) close() { s.dir.Remove() }
