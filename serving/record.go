package serving

import (
	"context"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/filecache"
	"glimpse/internal/outputs"
	"glimpse/kernels"
	"glimpse/model"
)

// RecordHeader is a header of requests: where it says off, nothing is kept of them after their answer.
const RecordHeader = "X-Glimpse-Record"

const (
	recordQueue = 256              // most pairs that wait to be written
	fileAge     = 5 * time.Minute  // after which a file of pairs is finished
	fileBytes   = 16 << 20         // so large, too
	sendWithin  = 20 * time.Second // what is finished goes to a bucket, or is sent later
	recordFiles = "recorded-*.jsonl"
)

// recorder writes answers as pair files, as the trainer reads them. Pairs are in a hidden file as soon as they are written,
// which gets its name when it is finished; what a killed server has left is finished by the next one.
type recorder struct {
	folder string            // of this machine
	store  objectstore.Store // where finished files go, at key; nil: they stay
	key    string
	header datasets.PairHeader
	limit  int64 // bytes of all files
	total  int64 // so far, without the open file
	share  float64
	most   int // tokens of prompt and answer that the trainer takes
	digits int // of an id, with a comma
	rng    *rand.Rand

	pairs   chan datasets.Pair
	done    chan struct{}
	metrics *metrics
	log     *slog.Logger

	file   *datasets.PairWriter // nil: none is open
	path   string
	unlock func()
	opened time.Time
	size   int64
}

// newRecorder takes up what is in the folder or bucket c.Record.
func newRecorder(ctx context.Context, m *model.Model, c *Config, metrics *metrics) (*recorder, error) {
	sum, err := m.SHA256(ctx)
	if err != nil {
		return nil, err
	}
	r := &recorder{
		folder: c.Record, limit: c.RecordLimit, share: c.RecordShare, most: m.Config.MaxPositions, digits: len(strconv.Itoa(m.Config.Vocab)) + 1,
		header: datasets.PairHeader{
			Model: m.Name, WeightsSHA256: sum, Seed: c.Seed, Shards: 1, Data: "requests to a server, answered with evicted caches", Device: kernels.DeviceOf(m.Backend),
			Sampling: datasets.Sampling{TopP: 1, MaxNewTokens: c.MaxNew, Processors: "sampled as each request has asked"},
		},
		rng: rand.New(rand.NewPCG(c.Seed, 1)), pairs: make(chan datasets.Pair, recordQueue), done: make(chan struct{}), metrics: metrics, log: c.Log,
	}
	if err := r.header.Validate(); err != nil {
		return nil, err
	}
	if objectstore.IsURL(c.Record) {
		if r.store, r.key, err = objectstore.Open(ctx, c.Record, c.S3); err != nil {
			return nil, err
		}
		if r.folder, err = spool(c.Record); err != nil {
			return nil, err
		}
		there, err := r.store.List(ctx, r.key)
		if err != nil {
			return nil, err
		}
		for _, i := range there {
			r.total += i.Size
		}
	}
	if err := os.MkdirAll(r.folder, 0o700); err != nil {
		return nil, err
	}
	r.takeUp()
	finished, err := filepath.Glob(filepath.Join(escaped(r.folder), "*.jsonl"))
	for _, path := range finished {
		if info, err := os.Stat(path); err == nil {
			r.total += info.Size()
		}
	}
	go r.recordPairs()
	return r, err
}

// spool is where files wait for a bucket, also the files of a server that was killed.
func spool(url string) (string, error) {
	root, err := filecache.Root()
	return filepath.Join(root, "recorded", fmt.Sprintf("%x", sha256.Sum256([]byte(url)))[:16]), err
}

// escaped is a folder in a pattern of filepath.Glob.
func escaped(folder string) string {
	return strings.NewReplacer(`[`, `[[]`, `*`, `[*]`, `?`, `[?]`).Replace(folder)
}

// takeUp finishes the files of servers that were killed.
func (r *recorder) takeUp() {
	left, _ := filepath.Glob(filepath.Join(escaped(r.folder), filepath.Base(datasets.PartialOf(recordFiles)))) // the pattern is well-formed
	for _, partial := range left {
		path := filepath.Join(r.folder, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(partial), "."), ".partial"))
		unlock, err := outputs.Lock(path)
		if err != nil { // of a server that lives
			continue
		}
		if err := datasets.FinishPartial(path); err != nil {
			r.log.Error("recorded pairs of an earlier server", "error", err)
		}
		unlock()
	}
}

// offer gives an answer to be recorded, unless chance says no. It does not wait.
func (r *recorder) offer(a *answered) {
	if r == nil || r.rng.Float64() >= r.share {
		return
	}
	response := a.response[:min(len(a.response), r.most-len(a.prompt))]
	if len(response) == 0 { // which teaches nothing
		return
	}
	select {
	case r.pairs <- datasets.Pair{ID: a.id, PromptIDs: a.prompt, ResponseIDs: response}:
	default:
		r.countOutcome("queue_full")
	}
}

func (r *recorder) countOutcome(outcome string) { r.metrics.recorded.WithLabelValues(outcome).Inc() }

func (r *recorder) recordPairs() {
	defer close(r.done)
	r.storeFiles()
	tick := time.NewTicker(fileAge / 10)
	defer tick.Stop()
	for {
		select {
		case p, more := <-r.pairs:
			if !more {
				r.commit()
				return
			}
			r.countOutcome(r.writePair(p))
			if r.size >= fileBytes {
				r.commit()
			}
		case <-tick.C:
			if r.file != nil && time.Since(r.opened) >= fileAge {
				r.commit()
			} else {
				r.storeFiles() // what could not be sent
			}
		}
	}
}

// writePair appends a pair and tells what has become of it.
func (r *recorder) writePair(p datasets.Pair) string {
	const rest = 1 << 10 // of a line, and of a file's header
	if r.total+r.size+int64(r.digits*(len(p.PromptIDs)+len(p.ResponseIDs)))+rest > r.limit {
		return "limit"
	}
	err := r.openFile()
	if err == nil {
		err = r.file.Write(p)
	}
	if err == nil {
		err = r.file.Flush()
	}
	if err == nil {
		var info os.FileInfo
		if info, err = os.Stat(datasets.PartialOf(r.path)); err == nil {
			r.size = info.Size()
			return "written"
		}
	}
	r.log.Error("recording a pair", "error", err)
	if r.file != nil { // whose last line may be half
		r.file.Abort()
		if err := datasets.FinishPartial(r.path); err != nil {
			r.log.Error("recorded pairs", "error", err)
		}
		r.endFile()
	}
	return "error"
}

// openFile begins a file where none is open.
func (r *recorder) openFile() (err error) {
	if r.file != nil {
		return nil
	}
	name := "recorded-" + time.Now().UTC().Format("20060102T150405Z") + "-" + cryptorand.Text()[:8] + ".jsonl"
	r.path = filepath.Join(r.folder, name)
	if r.unlock, err = outputs.Lock(r.path); err != nil {
		return err
	}
	if r.file, err = datasets.CreatePartial(r.path, r.header); err != nil {
		r.unlock()
		return err
	}
	r.opened = time.Now()
	return nil
}

// commit finishes the open file.
func (r *recorder) commit() {
	if r.file != nil {
		if err := r.file.Commit(); err != nil {
			r.log.Error("finishing recorded pairs", "error", err)
		}
		r.endFile()
	}
	r.storeFiles()
}

func (r *recorder) endFile() {
	r.unlock()
	r.total += r.size
	r.file, r.size = nil, 0
}

// storeFiles stores the finished files in the bucket; those that it cannot stay for the next time.
func (r *recorder) storeFiles() {
	if r.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendWithin)
	defer cancel()
	finished, _ := filepath.Glob(filepath.Join(escaped(r.folder), recordFiles)) // the pattern is well-formed
	for _, path := range finished {
		err := objectstore.PutFile(ctx, r.store, objectstore.Join(r.key, filepath.Base(path)), path, objectstore.PutOptions{New: true})
		if err == nil || errors.Is(err, objectstore.ErrExists) { // of a server that was killed before it removed it
			err = os.Remove(path)
		}
		if err != nil {
			r.log.Error("sending recorded pairs", "to", r.store.URL(r.key), "error", err)
			return
		}
	}
}

// stop writes what waits, after which nothing may be offered.
func (r *recorder) stop() {
	if r != nil {
		close(r.pairs)
		<-r.done
	}
}

// keeps tells whether something of a request may be kept after its answer. Of several values, off holds.
func keeps(h http.Header) (bool, error) {
	on := true
	for _, value := range strings.Split(strings.Join(h.Values(RecordHeader), ","), ",") {
		switch value = strings.TrimSpace(value); strings.ToLower(value) {
		case "on", "":
		case "off":
			on = false
		default:
			return false, refuse(RecordHeader, "got %.100q, want on or off", value)
		}
	}
	return on, nil
}
