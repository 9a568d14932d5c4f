package objectstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

const (
	parallelParts = 4
	// restarts bounds how often an upload begins anew because it was taken away.
	restarts = 3
	// abortTimeout bounds what ends an upload after a cancel: the arrival of parts that
	// are on their way, and then the request.
	abortTimeout = 10 * time.Second
)

// errLost reports an upload that another has ended or disturbed.
var errLost = errors.New("another writer of the same name ended the upload")

// Put implements Store. The SDK's transfer manager is not used: it can't go on
// with an upload of an earlier process.
func (b *bucket) Put(ctx context.Context, key string, src Source, opt PutOptions) error {
	if !fs.ValidPath(key) || key == "." {
		return fmt.Errorf("put %s: want names joined by slashes", b.URL(key))
	}
	if opt.New { // before the work, and again by the condition at its end
		if _, err := b.Stat(ctx, key); err == nil {
			return fmt.Errorf("put %s: %w", b.URL(key), ErrExists)
		} else if final(err) && !errors.Is(err, ErrNotExist) {
			return err
		}
	}
	sum, err := sha256Of(io.NewSectionReader(src, 0, src.Size()))
	if err != nil {
		return fmt.Errorf("put %s: %w", b.URL(key), err)
	}
	p := &put{bucket: b, key: key, src: src, opt: opt, meta: map[string]string{metaSHA256: hex.EncodeToString(sum), metaNonce: rand.Text()}}
	if src.Size() <= b.partSize {
		return p.single(ctx)
	}
	p.partSize = max(b.partSize, (src.Size()+maxParts-1)/maxParts)
	for range restarts {
		if err = p.multipart(ctx); !errors.Is(err, errLost) {
			break
		}
	}
	if err == nil && opt.New {
		// Whatever else was on its way to this name has lost; nobody will end it if its
		// writer is dead. The object is there, so a failure here is not one of Put.
		b.Sweep(ctx, key)
	}
	return err
}

// put is the state of one Put.
type put struct {
	*bucket
	key      string
	src      Source
	opt      PutOptions
	meta     map[string]string
	partSize int64
	fresh    bool // take up no upload of an earlier attempt
}

func (p *put) progress(n int64) {
	if p.opt.Progress != nil {
		p.opt.Progress(n)
	}
}

func (p *put) condition() *string {
	if p.opt.New {
		return aws.String("*")
	}
	return nil
}

// single sends the object in one request.
func (p *put) single(ctx context.Context) error {
	sum, err := p.sectionSum(0, p.src.Size())
	if err != nil {
		return err
	}
	_, err = p.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &p.name, Key: &p.key, Body: io.NewSectionReader(p.src, 0, p.src.Size()), ContentLength: aws.Int64(p.src.Size()),
		ChecksumSHA256: &sum, Metadata: p.meta, IfNoneMatch: p.condition(),
	})
	if err != nil {
		if p.arrived(ctx, err) {
			err = nil
		} else {
			return p.requestError("put", p.key, p.conflict(err))
		}
	}
	p.progress(p.src.Size())
	return nil
}

// conflicts are the answers that another conditional write is going on right now: S3's, and that of versitygw, which keeps
// objects as files.
var conflicts = []string{"ConditionalRequestConflict", "ExistingObjectIsDirectory"}

// conflict maps them, of a conditional write.
func (p *put) conflict(err error) error {
	if p.opt.New && slices.Contains(conflicts, codeOf(err)) {
		return fmt.Errorf("another writer is storing it at this moment: %w", ErrExists)
	}
	return err
}

// arrived tells that the object is there by this very Put, although the last answer
// was an error: an attempt whose answer was lost had succeeded.
func (p *put) arrived(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, ErrDenied) {
		return false
	}
	info, err := p.Stat(ctx, p.key)
	return err == nil && info.nonce == p.meta[metaNonce]
}

// sectionSum is the SHA-256 of a section, as S3 writes it.
func (p *put) sectionSum(off, size int64) (string, error) {
	sum, err := sha256Of(io.NewSectionReader(p.src, off, size))
	if err != nil {
		return "", fmt.Errorf("put %s: %w", p.URL(p.key), err)
	}
	return base64.StdEncoding.EncodeToString(sum), nil
}

// multipart sends the object in parts; an earlier attempt may have sent
// some.
func (p *put) multipart(ctx context.Context) error {
	sums := make([]string, (p.src.Size()+p.partSize-1)/p.partSize)
	for i := range sums {
		var err error
		if sums[i], err = p.sectionSum(p.section(i)); err != nil {
			return err
		}
	}
	var id string
	var parts []types.CompletedPart
	var err error
	if !p.fresh {
		if id, parts, err = p.findUpload(ctx, sums); err != nil {
			return err
		}
	}
	resumed := id != ""
	if !resumed {
		out, err := p.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
			Bucket: &p.name, Key: &p.key, Metadata: p.meta,
			ChecksumAlgorithm: types.ChecksumAlgorithmSha256, ChecksumType: types.ChecksumTypeComposite,
		})
		if err != nil {
			return p.requestError("put", p.key, err)
		}
		id, parts = aws.ToString(out.UploadId), make([]types.CompletedPart, len(sums))
	}
	err = p.sendParts(ctx, id, sums, parts)
	if err == nil {
		err = p.completeUpload(ctx, id, parts)
	}
	switch {
	case err == nil && resumed:
		return p.checkUpload(ctx)
	case err == nil:
	case ctx.Err() != nil:
		// The user said stop: nothing stays that costs money.
		free, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		return errors.Join(err, p.abortUpload(free, id))
	case final(err) || errors.Is(err, errLost):
		return errors.Join(err, p.abortUpload(ctx, id))
	default:
		kept := 0
		for _, part := range parts {
			if part.ETag != nil {
				kept++
			}
		}
		return fmt.Errorf("%w; %d of %d parts arrived and are kept: the same command sends the others", err, kept, len(parts))
	}
	return err
}

// abortUpload aborts an upload whose parts may still be on their way: one that arrives
// after the abort can bring the upload back, so the server is asked again.
func (p *put) abortUpload(ctx context.Context, id string) error {
	for attempt := range p.attempts {
		if err := p.abort(ctx, p.key, id); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(20*time.Millisecond, backoff(p.pause, attempt)/8)):
		}
		if ids, err := p.uploads(ctx, p.key); err != nil || !slices.Contains(ids, id) {
			return nil // or nobody may ask
		}
	}
	return fmt.Errorf("put %s: upload %s does not end; it may have to be removed by hand", p.URL(p.key), id)
}

// checkUpload makes sure that an upload that was taken up had been started for this
// content. One for content that differed only in parts that were never sent has
// metadata that are not true of this one, so the object is stored anew.
func (p *put) checkUpload(ctx context.Context) error {
	info, err := p.Stat(ctx, p.key)
	if err != nil {
		return err
	}
	if info.SHA256 == p.meta[metaSHA256] {
		return nil
	}
	if p.opt.New {
		if err := p.Delete(ctx, p.key); err != nil {
			return err
		}
	}
	p.fresh = true
	return fmt.Errorf("put %s: %w", p.URL(p.key), errLost)
}

// section is where part i lies.
func (p *put) section(i int) (off, size int64) {
	off = int64(i) * p.partSize
	return off, min(p.partSize, p.src.Size()-off)
}

// findUpload looks for an upload of this content: one whose parts, at least one, are all
// parts of it. Its finished parts are filled in.
func (p *put) findUpload(ctx context.Context, sums []string) (id string, parts []types.CompletedPart, err error) {
	ids, err := p.uploads(ctx, p.key)
	if err != nil {
		if statusOf(err) == 403 || errors.Is(err, ErrDenied) { // allowed to write and not to list
			return "", nil, nil
		}
		return "", nil, err
	}
	for _, candidate := range slices.Backward(ids) {
		parts, most := make([]types.CompletedPart, len(sums)), 0
		same := true
		pages := s3.NewListPartsPaginator(p.client, &s3.ListPartsInput{Bucket: &p.name, Key: &p.key, UploadId: aws.String(candidate)})
		for same && pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				if statusOf(err) == 404 { // finished meanwhile
					same = false
					break
				}
				return "", nil, p.requestError("list parts of", p.key, err)
			}
			for _, part := range page.Parts {
				i := int(aws.ToInt32(part.PartNumber)) - 1
				if i < 0 || i >= len(sums) || aws.ToString(part.ChecksumSHA256) != sums[i] {
					same = false
					break
				}
				parts[i] = types.CompletedPart{PartNumber: part.PartNumber, ETag: part.ETag, ChecksumSHA256: part.ChecksumSHA256}
				most++
			}
		}
		if same && most > 0 {
			return candidate, parts, nil
		}
	}
	return "", nil, nil
}

// sendParts sends the parts that are missing, several at a time. The first error
// ends it. Parts that are on their way then get some time to arrive: a server may
// store a part whose sender has hung up after the upload that it belongs to was ended.
func (p *put) sendParts(ctx context.Context, id string, sums []string, parts []types.CompletedPart) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelParts)
	started, done := Linger(ctx)
	defer done()
	for i := range parts {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if parts[i].ETag == nil {
				if err := p.sendPart(started, id, i, sums[i], &parts[i]); err != nil {
					return err
				}
			}
			_, size := p.section(i)
			p.progress(size)
			return nil
		})
	}
	return group.Wait()
}

func (p *put) sendPart(ctx context.Context, id string, i int, sum string, part *types.CompletedPart) error {
	off, size := p.section(i)
	number := aws.Int32(int32(i + 1))
	out, err := p.client.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &p.name, Key: &p.key, UploadId: &id, PartNumber: number,
		Body: io.NewSectionReader(p.src, off, size), ContentLength: &size, ChecksumSHA256: &sum,
	})
	if err != nil {
		// A server may hang up on a part of an upload that is gone before it says so.
		if gone := p.taken(ctx); codeOf(err) == "NoSuchUpload" || errors.Is(gone, ErrExists) {
			return gone
		}
		return fmt.Errorf("put %s: part %d of %d: %w", p.URL(p.key), i+1, (p.src.Size()+p.partSize-1)/p.partSize, p.explain(err))
	}
	*part = types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumSHA256: &sum}
	return nil
}

// taken says why an upload is gone: another writer has stored the object and swept
// the others, or disturbed this one.
func (p *put) taken(ctx context.Context) error {
	if p.opt.New {
		if info, err := p.Stat(ctx, p.key); err == nil && info.nonce != p.meta[metaNonce] {
			return fmt.Errorf("put %s: %w", p.URL(p.key), ErrExists)
		}
	}
	return fmt.Errorf("put %s: %w", p.URL(p.key), errLost)
}

// completeUpload makes an object of the parts.
func (p *put) completeUpload(ctx context.Context, id string, parts []types.CompletedPart) error {
	_, err := p.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &p.name, Key: &p.key, UploadId: &id, IfNoneMatch: p.condition(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	switch code := codeOf(err); {
	case err == nil || p.arrived(ctx, err):
		return nil
	case code == "NoSuchUpload":
		if info, err := p.Stat(ctx, p.key); err == nil && !p.opt.New && info.SHA256 == p.meta[metaSHA256] {
			return nil // of a resumed upload, whose nonce is another
		}
		return p.taken(ctx)
	case code == "InvalidPart" || code == "InvalidPartOrder":
		return fmt.Errorf("put %s: %s: %w", p.URL(p.key), code, errLost)
	}
	return p.requestError("put", p.key, p.conflict(err))
}
