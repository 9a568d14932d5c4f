package storetest

import (
	"bytes"
	"cmp"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeS3 is an S3 server in memory: what this package uses of the protocol, with
// conditional writes and SHA-256 checksums, without signatures. The full rules are
// a real server's; scripts/durability.sh runs the same tests on one.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string]fakeObject // by bucket/key
	uploads map[string]*fakeUpload
	counter int
}

type fakeObject struct {
	data       []byte
	etag       string
	sum        string // base64, "" for a multipart upload's
	sha256Meta string
	nonceMeta  string
	modified   time.Time
}

type fakeUpload struct {
	path  string // bucket/key
	meta  fakeObject
	parts map[int]fakeObject
}

func newFake() *fakeS3 {
	return &fakeS3{objects: make(map[string]fakeObject), uploads: make(map[string]*fakeUpload)}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s of the fake server</Message></Error>", code, code)
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/")
	bucket, key, _ := strings.Cut(path, "/")
	if bucket != Bucket {
		refuse(w, 404, "NoSuchBucket")
		return
	}
	if sum := r.Header.Get("X-Amz-Checksum-Sha256"); sum != "" && r.Method == http.MethodPut && sum != base64Sum(body) {
		refuse(w, 400, "BadDigest")
		return
	}
	q := r.URL.Query()
	id := q.Get("uploadId")
	upload := f.uploads[id]
	if id != "" && (upload == nil || upload.path != path) {
		refuse(w, 404, "NoSuchUpload")
		return
	}
	switch {
	case key == "" && r.Method == http.MethodHead:
	case key == "" && q.Has("uploads"):
		f.listUploads(w, bucket, q.Get("prefix"))
	case key == "":
		f.list(w, bucket, q.Get("prefix"))
	case r.Method == http.MethodPost && q.Has("uploads"):
		f.counter++
		id := fmt.Sprintf("upload-%d", f.counter)
		f.uploads[id] = &fakeUpload{path: path, meta: metaOf(r), parts: make(map[int]fakeObject)}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && id != "":
		part := fakeObject{data: body, etag: etag(body), sum: base64Sum(body)}
		n, _ := strconv.Atoi(q.Get("partNumber"))
		upload.parts[n] = part
		w.Header().Set("ETag", part.etag)
	case r.Method == http.MethodGet && id != "":
		fmt.Fprint(w, "<ListPartsResult><IsTruncated>false</IsTruncated>")
		for n, part := range upload.parts {
			fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size><ChecksumSHA256>%s</ChecksumSHA256></Part>", n, part.etag, len(part.data), part.sum)
		}
		fmt.Fprint(w, "</ListPartsResult>")
	case r.Method == http.MethodPost && id != "":
		f.complete(w, r, id, path, body)
	case r.Method == http.MethodDelete && id != "":
		delete(f.uploads, id)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPut:
		if !f.free(w, r, path) {
			return
		}
		o := metaOf(r)
		o.data, o.etag, o.sum, o.modified = body, etag(body), base64Sum(body), time.Now()
		f.objects[path] = o
		w.Header().Set("ETag", o.etag)
	case r.Method == http.MethodDelete:
		delete(f.objects, path)
		w.WriteHeader(http.StatusNoContent)
	default:
		f.get(w, r, path)
	}
}

func metaOf(r *http.Request) fakeObject {
	return fakeObject{sha256Meta: r.Header.Get("X-Amz-Meta-Glimpse-Sha256"), nonceMeta: r.Header.Get("X-Amz-Meta-Glimpse-Put")}
}

// free answers a conditional write of an object that is there.
func (f *fakeS3) free(w http.ResponseWriter, r *http.Request, path string) bool {
	if _, there := f.objects[path]; there && r.Header.Get("If-None-Match") == "*" {
		refuse(w, 412, "PreconditionFailed")
		return false
	}
	return true
}

func (f *fakeS3) get(w http.ResponseWriter, r *http.Request, path string) {
	o, ok := f.objects[path]
	if !ok {
		refuse(w, 404, "NoSuchKey")
		return
	}
	if tag := r.Header.Get("If-Match"); tag != "" && tag != o.etag {
		refuse(w, 412, "PreconditionFailed") // which ServeContent tells without a word, and clients then try again
		return
	}
	h := w.Header()
	h.Set("ETag", o.etag)
	h.Set("X-Amz-Meta-Glimpse-Sha256", o.sha256Meta)
	h.Set("X-Amz-Meta-Glimpse-Put", o.nonceMeta)
	if r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" && o.sum != "" {
		h.Set("X-Amz-Checksum-Sha256", o.sum)
	}
	http.ServeContent(w, r, "", o.modified, bytes.NewReader(o.data)) // Range, too
}

func (f *fakeS3) complete(w http.ResponseWriter, r *http.Request, id, path string, body []byte) {
	var wanted struct {
		Part []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := xml.Unmarshal(body, &wanted); err != nil || len(wanted.Part) == 0 {
		refuse(w, 400, "MalformedXML")
		return
	}
	u := f.uploads[id]
	o := u.meta
	for i, p := range wanted.Part {
		part, ok := u.parts[p.PartNumber]
		if !ok || part.etag != p.ETag {
			refuse(w, 400, "InvalidPart")
			return
		}
		if i < len(wanted.Part)-1 && int64(len(part.data)) < PartBytes {
			refuse(w, 400, "EntityTooSmall")
			return
		}
		o.data = append(o.data, part.data...)
	}
	if !f.free(w, r, path) {
		return
	}
	o.etag, o.modified = fmt.Sprintf(`"%x-%d"`, md5.Sum(o.data), len(wanted.Part)), time.Now()
	f.objects[path] = o
	delete(f.uploads, id)
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", o.etag)
}

func (f *fakeS3) list(w http.ResponseWriter, bucket, prefix string) {
	type item struct {
		key string
		fakeObject
	}
	var items []item
	for path, o := range f.objects {
		key := strings.TrimPrefix(path, bucket+"/")
		if rest, ok := strings.CutPrefix(key, prefix); ok && !strings.Contains(rest, "/") {
			items = append(items, item{key, o})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Compare(a.key, b.key) })
	fmt.Fprintf(w, "<ListBucketResult><Name>%s</Name>", bucket)
	for _, i := range items {
		fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>%d</Size><ETag>%s</ETag><LastModified>%s</LastModified></Contents>",
			i.key, len(i.data), i.etag, i.modified.UTC().Format(time.RFC3339))
	}
	fmt.Fprint(w, "</ListBucketResult>")
}

func (f *fakeS3) listUploads(w http.ResponseWriter, bucket, prefix string) {
	fmt.Fprintf(w, "<ListMultipartUploadsResult><Bucket>%s</Bucket>", bucket)
	for id, u := range f.uploads {
		if key := strings.TrimPrefix(u.path, bucket+"/"); strings.HasPrefix(key, prefix) {
			fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>%s</UploadId></Upload>", key, id)
		}
	}
	fmt.Fprint(w, "</ListMultipartUploadsResult>")
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

func base64Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return base64.StdEncoding.EncodeToString(sum[:])
}
