package generation

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/tempdir"
)

// Stored are shards of pairs in a folder of an object store:
//
//	pairs-00001-of-00003.jsonl                               a finished shard
//	.work/.settings.json                                     what all shards are made with
//	.work/pairs-00001-of-00003.jsonl/claim-000001            who works on it
//	.work/pairs-00001-of-00003.jsonl/part-000000000000       its first bytes
//	.work/pairs-00001-of-00003.jsonl/part-000000123456       its bytes from 123456 on
//
// The folder of a shard below .work goes when the shard is finished. Parts end with a
// pair, and are never replaced by later ones, so that no byte is sent twice.
type Stored struct {
	Store  objectstore.Store
	Folder string
	Claims objectstore.Claims
	Save   time.Duration // between uploads; 0 is 30 s
}

const (
	saveEvery   = 30 * time.Second
	workFolder  = ".work"
	partPrefix  = "part-"
	leaveWithin = 20 * time.Second // for what is saved after a cancel

	// cutBytes is the size beyond which what is saved is cut into several parts. It is
	// below the size of multipart uploads: a kill could leave parts of these behind.
	cutBytes = 4 << 20
)

// StoredShard is a shard claimed by this process. What it has so far is kept in a local
// file, in a temporary folder, and sent to the store from time to time.
type StoredShard struct {
	*datasets.Shard
	in     Stored
	header datasets.PairHeader
	dir    *tempdir.Dir // local
	file   string       // in it
	claim  *objectstore.Claim
	left   bool

	saver  sync.WaitGroup
	cancel context.CancelFunc // of the saver

	mu   sync.Mutex
	size int64   // of the local file, after a whole pair
	cuts []int64 // where parts may end, ascending, in what is not sent
	sent int64
}

func (s Stored) shardKey(h datasets.PairHeader) string {
	return objectstore.Join(s.Folder, datasets.ShardName(h.Shard, h.Shards))
}

func (s Stored) work(h datasets.PairHeader) string {
	return objectstore.Join(s.Folder, workFolder+"/"+datasets.ShardName(h.Shard, h.Shards))
}

func partKey(work string, from int64) string {
	return objectstore.Join(work, fmt.Sprintf("%s%012d", partPrefix, from))
}

// Open claims the shard of the header and goes on with what others have left of it.
// datasets.ErrFinished tells that there is nothing to do, an error that is also
// objectstore.ErrClaimed that another works on it.
func (s Stored) Open(ctx context.Context, h datasets.PairHeader) (*StoredShard, error) {
	if err := h.Validate(); err != nil {
		return nil, fmt.Errorf("open shard: header: %w", err)
	}
	if err := s.claimSettings(ctx, h); err != nil {
		return nil, err
	}
	if err := s.checkFinished(ctx, h); err != nil {
		if errors.Is(err, datasets.ErrFinished) {
			s.clean(ctx, h) // who finished it may have been killed before that
		}
		return nil, err
	}
	claim, err := s.Claims.Take(ctx, s.Store, s.work(h))
	if err != nil {
		return nil, err
	}
	shard, err := s.openClaimed(ctx, h, claim)
	if err != nil {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
		defer cancel()
		claim.Release(leave)
		if errors.Is(err, datasets.ErrFinished) {
			s.clean(leave, h)
		}
		return nil, err
	}
	return shard, nil
}

func (s Stored) openClaimed(ctx context.Context, h datasets.PairHeader, claim *objectstore.Claim) (shard *StoredShard, err error) {
	// Under the claim: a shard that was finished meanwhile is seen.
	if err := s.checkFinished(ctx, h); err != nil {
		return nil, err
	}
	dir, err := tempdir.New("", "glimpse-shard-")
	if err != nil {
		return nil, fmt.Errorf("open shard: %w", err)
	}
	defer func() {
		if err != nil {
			dir.Remove()
		}
	}()
	file := filepath.Join(dir.Path, datasets.PartialName(h.Shard, h.Shards))
	shard = &StoredShard{in: s, header: h, dir: dir, file: file, claim: claim}
	if shard.sent, err = s.fetch(ctx, h, file); err != nil {
		return nil, err
	}
	if shard.Shard, err = datasets.OpenShard(dir.Path, h); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Store.URL(s.work(h)), err)
	}
	err = shard.grown()
	if err == nil && shard.size < shard.sent {
		err = fmt.Errorf("%s: the parts do not end with a sample; remove it to begin again", s.Store.URL(s.work(h)))
	}
	if err != nil {
		shard.Shard.Release()
		return nil, err
	}
	saving, cancel := context.WithCancel(claim.Context())
	shard.cancel = cancel
	shard.saver.Go(func() { shard.saveAlways(saving) })
	return shard, nil
}

// Begun is the header of the folder's shards, as datasets.BegunFile is of a file.
func (s Stored) Begun(ctx context.Context) (h datasets.PairHeader, found bool, err error) {
	key := objectstore.Join(s.Folder, workFolder+"/"+datasets.SettingsName)
	data, err := objectstore.Get(ctx, s.Store, key, datasets.MaxLine)
	if errors.Is(err, objectstore.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	r, err := datasets.NewPairReader(s.Store.URL(key), bytes.NewReader(data))
	if err != nil {
		return h, false, err
	}
	return r.Header(), true, nil
}

// claimSettings makes the folder one of the header's settings, if it has none yet.
func (s Stored) claimSettings(ctx context.Context, h datasets.PairHeader) error {
	key := objectstore.Join(s.Folder, workFolder+"/"+datasets.SettingsName)
	for {
		data, err := objectstore.Get(ctx, s.Store, key, datasets.MaxLine)
		if err == nil {
			return h.CheckSettings(s.Store.URL(key), data)
		}
		if !errors.Is(err, objectstore.ErrNotExist) {
			return err
		}
		if data, err = h.EncodeSettings(); err != nil {
			return err
		}
		// Another may have been faster, and then says what the settings are.
		err = s.Store.Put(ctx, key, bytes.NewReader(data), objectstore.PutOptions{New: true})
		if err != nil && !errors.Is(err, objectstore.ErrExists) {
			return err
		}
	}
}

// checkFinished is ErrFinished for a shard that is there, nil for one that is not.
func (s Stored) checkFinished(ctx context.Context, h datasets.PairHeader) error {
	o, err := s.Store.Open(ctx, s.shardKey(h))
	if errors.Is(err, objectstore.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer o.Close()
	r, err := datasets.NewPairReader(s.Store.URL(s.shardKey(h)), io.NewSectionReader(o, 0, o.Info().Size))
	if err != nil {
		return err
	}
	return r.Finished(h)
}

// fetch brings the parts, as far as they follow each other, to a local file. A part
// that is damaged ends them: its pairs are made again.
func (s Stored) fetch(ctx context.Context, h datasets.PairHeader, to string) (size int64, err error) {
	work := s.work(h)
	list, err := s.Store.List(ctx, work)
	if err != nil {
		return 0, err
	}
	there := make(map[int64]string)
	for _, i := range list {
		digits, ok := strings.CutPrefix(path.Base(i.Key), partPrefix)
		if from, err := strconv.ParseInt(digits, 10, 64); ok && err == nil && i.Size > 0 {
			there[from] = i.Key
		}
	}
	f, err := os.Create(to)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for {
		key, ok := there[size]
		if !ok {
			return size, nil
		}
		data, err := objectstore.Get(ctx, s.Store, key, datasets.MaxLine+2*cutBytes)
		if errors.Is(err, objectstore.ErrDamaged) || errors.Is(err, objectstore.ErrNotExist) {
			return size, nil
		}
		if err != nil {
			return 0, err
		}
		if size == 0 {
			url := s.Store.URL(key)
			r, err := datasets.NewPairReader(url, strings.NewReader(string(data)))
			if err != nil {
				return 0, err
			}
			if got := r.Header(); !got.Same(h) {
				return 0, fmt.Errorf("%s: was begun with other settings: %s; remove %s to begin again", url, got.Differences(h), s.Store.URL(work))
			}
		}
		if _, err := f.Write(data); err != nil {
			return 0, err
		}
		size += int64(len(data))
	}
}

// clean removes the shard's claims and parts.
func (s Stored) clean(ctx context.Context, h datasets.PairHeader) error {
	list, err := s.Store.List(ctx, s.work(h))
	failed := []error{err}
	for _, i := range list {
		failed = append(failed, s.Store.Delete(ctx, i.Key))
	}
	return errors.Join(failed...)
}

// Context is that of the work on the shard; see objectstore.Claim.
func (s *StoredShard) Context() context.Context { return s.claim.Context() }

// Write appends a pair. It reaches the store with the next upload.
func (s *StoredShard) Write(p datasets.Pair) error {
	if err := s.Shard.Write(p); err != nil {
		return err
	}
	return s.grown()
}

// grown notes that the local file has grown by whole lines.
func (s *StoredShard) grown() error {
	info, err := os.Stat(s.file)
	if err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.size = info.Size()
	last := s.sent
	if n := len(s.cuts); n > 0 {
		last = s.cuts[n-1]
	}
	if s.size-last >= cutBytes {
		s.cuts = append(s.cuts, s.size)
	}
	return nil
}

func (s *StoredShard) saveAlways(ctx context.Context) {
	sending, done := objectstore.Linger(ctx)
	defer done()
	tick := time.NewTicker(cmp.Or(s.in.Save, saveEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// What fails now is sent with the next.
			s.save(sending)
		}
	}
}

// save sends what is not sent yet.
func (s *StoredShard) save(ctx context.Context) error {
	f, err := os.Open(s.file)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		s.mu.Lock()
		from, to := s.sent, s.size
		if len(s.cuts) > 0 {
			to = s.cuts[0]
		}
		s.mu.Unlock()
		if from == to {
			return nil
		}
		if err := s.claim.Held(ctx); err != nil {
			return err
		}
		// What is there of that name was damaged, or is of an owner who has lost the claim.
		if err := s.in.Store.Put(ctx, partKey(s.in.work(s.header), from), io.NewSectionReader(f, from, to-from), objectstore.PutOptions{}); err != nil {
			return err
		}
		s.mu.Lock()
		s.sent = to
		s.cuts = slices.DeleteFunc(s.cuts, func(at int64) bool { return at <= to })
		s.mu.Unlock()
	}
}

// stopSaving ends the uploads in the background.
func (s *StoredShard) stopSaving() {
	s.cancel()
	s.saver.Wait()
}

// Commit stores the finished shard and removes the claim and the parts.
// datasets.ErrFinished if another has been faster, which takes that this process was
// held up for so long that its claim was taken over. After another error the shard is
// still to be released.
func (s *StoredShard) Commit() error {
	s.stopSaving()
	ctx := s.claim.Context()
	err := s.commit(ctx)
	if err != nil && !errors.Is(err, datasets.ErrFinished) {
		return err
	}
	s.claim.Stop() // a sign of life after this would bring the claim back
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	// The shard is there; what is left behind now is removed by who next finds it so.
	s.in.clean(leave, s.header)
	s.left = true
	s.dir.Remove()
	return err
}

func (s *StoredShard) commit(ctx context.Context) error {
	if err := s.Shard.Commit(); err != nil {
		return err
	}
	s.file = filepath.Join(s.dir.Path, datasets.ShardName(s.header.Shard, s.header.Shards))
	err := s.claim.Held(ctx)
	if err == nil {
		err = objectstore.PutFile(ctx, s.in.Store, s.in.shardKey(s.header), s.file, objectstore.PutOptions{New: true})
	}
	if errors.Is(err, objectstore.ErrClaimLost) || errors.Is(err, objectstore.ErrExists) {
		err = errors.Join(err, s.in.checkFinished(ctx, s.header))
	}
	return err
}

// Release lets go of a shard that is not finished: what is written goes to the store,
// and the claim is free. It does nothing after Commit.
func (s *StoredShard) Release() {
	if s.left {
		return
	}
	s.left = true
	defer s.dir.Remove()
	s.stopSaving()
	defer s.Shard.Release()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.claim.Context()), leaveWithin)
	defer cancel()
	// What cannot be sent now is made again.
	s.save(ctx)
	s.claim.Release(ctx)
}
