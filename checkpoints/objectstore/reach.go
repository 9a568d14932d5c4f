package objectstore

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"glimpse/internal/patience"
)

// errUnreachable is the error of a server that no connection reaches and that has not answered
// this program before.
var errUnreachable = errors.New("cannot be reached")

const (
	// unreachableAfter is how long a server that never answered is tried. With the pause that
	// may just have begun it is below ten seconds. One that did answer is worth two minutes: a
	// run has something to lose then, and the network comes back.
	unreachableAfter = 4 * time.Second
	dialTimeout      = 5 * time.Second
)

// answered has the hosts that answered this program. A run opens its bucket more than once.
var answered sync.Map

// reach gives a server up early that cannot be reached and has never answered. It is safe for
// concurrent use.
type reach struct {
	patience.Doer

	mu    sync.Mutex
	since time.Time // of the first failure
}

// Do implements patience.Doer.
func (c *reach) Do(r *http.Request) (*http.Response, error) {
	begin := time.Now()
	answer, err := c.Doer.Do(r)
	if err == nil {
		answered.Store(r.URL.Host, true)
		return answer, nil
	}
	if _, before := answered.Load(r.URL.Host); before || r.Context().Err() != nil || !undialled(err) {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		c.since = begin
	}
	if time.Since(c.since) < unreachableAfter {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", errUnreachable, err)
}

// undialled tells that there was no connection.
func undialled(err error) bool {
	dial, ok := errors.AsType[*net.OpError](err)
	return ok && dial.Op == "dial"
}

// networkError puts a failure of the connection into one clause: the server's address, then the
// cause. The SDK's own text has request ids, which are empty without an answer.
func networkError(err error) error {
	address, why, ok := silentServer(err)
	if !ok {
		return err
	}
	text := fmt.Sprintf("no answer from %s: %v", address, why)
	if undialled(err) {
		text += "; --s3-endpoint or AWS_ENDPOINT_URL_S3 says which server is used"
	}
	return answer{text, err}
}

// silentServer is the address of the server that a request had no answer from, and why.
func silentServer(err error) (address string, why error, ok bool) {
	request, ok := errors.AsType[*url.Error](err)
	if !ok {
		return "", nil, false
	}
	address = request.URL
	if u, parseErr := url.Parse(address); parseErr == nil {
		address = u.Scheme + "://" + u.Host
	}
	return address, request.Err, true
}
