package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// bucket is a Store in S3.
type bucket struct {
	client   *s3.Client
	name     string
	partSize int64
	pause    time.Duration
	attempts int
	// warn tells that what arrives in clear text cannot be verified.
	warn func(text string)
}

// warned has the servers that a person was told of. A run opens its bucket more than once.
var warned sync.Map

var _ Store = (*bucket)(nil)

// The metadata that Put gives to every object.
const (
	metaSHA256 = "glimpse-sha256" // of the content
	metaNonce  = "glimpse-put"    // tells one Put from another
)

// URL implements Store.
func (b *bucket) URL(key string) string {
	if key == "" || key == "." {
		return scheme + b.name
	}
	return scheme + b.name + "/" + key
}

// Stat implements Store.
func (b *bucket) Stat(ctx context.Context, key string) (Info, error) {
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: &key, ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		// A HEAD has no body that could tell a missing bucket from a missing object.
		if codeOf(err) == "NotFound" || statusOf(err) == 404 {
			if _, bucketErr := b.client.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &b.name}); statusOf(bucketErr) == 404 {
				return Info{}, fmt.Errorf("stat %s: bucket %q does not exist: %w", b.URL(key), b.name, ErrNotExist)
			}
		}
		return Info{}, b.requestError("stat", key, err)
	}
	// Both times are the server's: clocks of machines that share a bucket may differ.
	now, ok := awsmiddleware.GetServerTime(out.ResultMetadata)
	if !ok {
		now = time.Now()
	}
	if out.ContentLength == nil {
		return Info{}, fmt.Errorf("stat %s: the server does not tell the size", b.URL(key))
	}
	info := Info{
		Key: key, Size: aws.ToInt64(out.ContentLength), Version: aws.ToString(out.ETag), Modified: aws.ToTime(out.LastModified),
		Age:    max(0, now.Sub(aws.ToTime(out.LastModified))),
		SHA256: out.Metadata[metaSHA256], nonce: out.Metadata[metaNonce],
		checksum: checksumOf(out.ChecksumSHA256, out.ChecksumSHA1, out.ChecksumCRC64NVME, out.ChecksumCRC32C, out.ChecksumCRC32),
	}
	if info.Version == "" && info.SHA256 == "" && info.checksum.algorithm == "" {
		b.warn(b.URL(key) + ": the server tells neither a checksum nor an ETag, and answers over plain HTTP: what arrives is not verified, and every command fetches it again")
	}
	return info, nil
}

// Open implements Store.
func (b *bucket) Open(ctx context.Context, key string) (Object, error) {
	info, err := b.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	return &s3Object{b, ctx, info}, nil
}

// s3Object reads one version of an object.
type s3Object struct {
	b    *bucket
	ctx  context.Context
	info Info
}

func (o *s3Object) Info() Info   { return o.info }
func (o *s3Object) Close() error { return nil }

// ReadAt asks for the range, and again for what is missing where the connection
// breaks: it gives up after so many attempts without a single byte.
func (o *s3Object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, fmt.Errorf("read %s: offset %d is negative", o.b.URL(o.info.Key), off)
	}
	want := int(max(0, min(int64(len(p)), o.info.Size-off)))
	done := 0
	for attempt := 0; done < want; {
		n, err := o.readSome(p[done:want], off+int64(done))
		done += n
		switch {
		case err == nil:
			continue
		case final(err), errors.Is(err, ErrChanged), o.ctx.Err() != nil:
			return done, err
		case n > 0:
			attempt = 0
		}
		if attempt++; attempt >= o.b.attempts {
			return done, fmt.Errorf("%w (%d attempts)", err, attempt)
		}
		select {
		case <-o.ctx.Done():
		case <-time.After(backoff(o.b.pause, attempt)):
		}
	}
	if done < len(p) {
		return done, io.EOF
	}
	return done, nil
}

// readSome is one attempt.
func (o *s3Object) readSome(p []byte, off int64) (int, error) {
	out, err := o.b.client.GetObject(o.ctx, &s3.GetObjectInput{
		Bucket: &o.b.name, Key: &o.info.Key, IfMatch: &o.info.Version,
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", off, off+int64(len(p))-1)),
	})
	if err != nil {
		if statusOf(err) == 412 {
			return 0, fmt.Errorf("read %s: %w", o.b.URL(o.info.Key), ErrChanged)
		}
		return 0, o.b.requestError("read", o.info.Key, err)
	}
	defer out.Body.Close()
	if err := o.checkAnswer(out, off, int64(len(p))); err != nil {
		return 0, fmt.Errorf("read %s: bytes %d to %d: %w", o.b.URL(o.info.Key), off, off+int64(len(p)), err)
	}
	n, err := io.ReadFull(out.Body, p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return n, fmt.Errorf("read %s: bytes %d to %d of %d: %w", o.b.URL(o.info.Key), off+int64(n), off+int64(len(p)), o.info.Size, err)
	}
	return n, nil
}

// checkAnswer is an error unless an answer holds the range that was asked for, of the
// version that is read. Servers and proxies that ignore Range answer with the whole
// object, whose first bytes would be taken for the range.
func (o *s3Object) checkAnswer(out *s3.GetObjectOutput, off, length int64) error {
	if tag := aws.ToString(out.ETag); tag != o.info.Version {
		return fmt.Errorf("got version %.80q, want %.80q: %w", tag, o.info.Version, ErrChanged)
	}
	got, want := aws.ToString(out.ContentRange), fmt.Sprintf("bytes %d-%d/%d", off, off+length-1, o.info.Size)
	_, total, _ := strings.Cut(got, "/")
	size, err := strconv.ParseInt(total, 10, 64)
	switch {
	case got == "" && off == 0 && aws.ToInt64(out.ContentLength) == o.info.Size:
		return nil // the whole object begins with what was asked for
	case err == nil && size != o.info.Size:
		// Some servers tell of an object that is replaced at this moment the size before and the version after.
		return fmt.Errorf("got a size of %d bytes, want %d: %w", size, o.info.Size, ErrChanged)
	case got != want:
		return fmt.Errorf("the server answered with %s, want %q: it, or a proxy before it, does not do what Range asks", rangeText(got), want)
	case aws.ToInt64(out.ContentLength) != length:
		return fmt.Errorf("the server announces %d bytes, want %d", aws.ToInt64(out.ContentLength), length)
	}
	return nil
}

func rangeText(contentRange string) string {
	if contentRange == "" {
		return "the whole object"
	}
	return fmt.Sprintf("%.80q", contentRange)
}

// List implements Store.
func (b *bucket) List(ctx context.Context, folder string) ([]Info, error) {
	prefix := ""
	if folder != "" && folder != "." {
		prefix = folder + "/"
	}
	var out []Info
	pages := s3.NewListObjectsV2Paginator(b.client, &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: &prefix, Delimiter: aws.String("/")})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.requestError("list", folder, err)
		}
		for _, o := range page.Contents {
			key := aws.ToString(o.Key)
			if key == prefix || strings.HasSuffix(key, "/") { // folder markers that consoles make
				continue
			}
			out = append(out, Info{Key: key, Size: aws.ToInt64(o.Size), Version: aws.ToString(o.ETag), Modified: aws.ToTime(o.LastModified)})
		}
	}
	return out, nil
}

// Delete implements Store.
func (b *bucket) Delete(ctx context.Context, key string) error {
	if _, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: &key}); err != nil && codeOf(err) != "NoSuchKey" {
		return b.requestError("delete", key, err)
	}
	return nil
}

// Sweep implements Store: it ends the key's unfinished uploads.
func (b *bucket) Sweep(ctx context.Context, key string) error {
	uploads, err := b.uploads(ctx, key)
	if err != nil {
		return err
	}
	for _, id := range uploads {
		if err := b.abort(ctx, key, id); err != nil {
			return err
		}
	}
	return nil
}

// uploads lists the ids of the key's unfinished uploads.
func (b *bucket) uploads(ctx context.Context, key string) ([]string, error) {
	var ids []string
	pages := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: &key})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, b.requestError("list uploads of", key, err)
		}
		for _, u := range page.Uploads {
			if aws.ToString(u.Key) == key {
				ids = append(ids, aws.ToString(u.UploadId))
			}
		}
	}
	return ids, nil
}

func (b *bucket) abort(ctx context.Context, key, id string) error {
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: &key, UploadId: &id})
	if err != nil && codeOf(err) != "NoSuchUpload" && statusOf(err) != 404 {
		return b.requestError("end upload of", key, err)
	}
	return nil
}
