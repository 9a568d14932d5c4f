package objectstore

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
)

const (
	// headerTimeout bounds the wait for an answer once a request is sent.
	headerTimeout = 30 * time.Second
	// stallTimeout bounds the wait for the next bytes of an answer.
	stallTimeout = 30 * time.Second
	// noticeAfter is when a person is told what is waited for.
	noticeAfter = 5 * time.Second
	// maxSilent is the number of requests in a row without an answer after which a
	// server is given up.
	maxSilent = 2
)

// errSilent is the error of a server that takes requests and answers none.
var errSilent = errors.New("the server does not answer")

// damagedInTransit are the codes by which a server says that what arrived was not what was sent.
var damagedInTransit = []string{"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout", "MalformedXML"}

// transient tells of answers that another attempt may not get: one that was cut or is
// not what the protocol says, and a refusal of what was damaged on its way.
func transient(err error) bool {
	var malformed *smithy.DeserializationError
	return errors.As(err, &malformed) || slices.Contains(damagedInTransit, codeOf(err))
}

// hopeless tells of errors of the connection that another attempt gets, too.
func hopeless(err error) bool {
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &certificate) || errors.Is(err, errSilent)
}

// retryable is the SDK's question whether a request is sent again.
type retryable struct{}

func (retryable) IsErrorRetryable(err error) aws.Ternary {
	switch {
	case hopeless(err):
		return aws.FalseTernary
	case transient(err):
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}

// patient is an HTTP client that tells what it waits for, and gives a server up that
// answers nothing.
type patient struct {
	client interface {
		Do(*http.Request) (*http.Response, error)
	}
	notice func(text string)
	after  time.Duration
	silent atomic.Int32 // requests in a row without an answer
}

func (p *patient) Do(r *http.Request) (*http.Response, error) {
	if p.notice != nil {
		defer time.AfterFunc(p.after, func() {
			p.notice(fmt.Sprintf("waiting for an answer of %s", r.URL.Host))
		}).Stop()
	}
	answer, err := p.client.Do(r)
	var timeout net.Error
	if err == nil || r.Context().Err() != nil || !errors.As(err, &timeout) || !timeout.Timeout() {
		p.silent.Store(0)
		return answer, err
	}
	if n := p.silent.Add(1); n >= maxSilent {
		return nil, fmt.Errorf("%s: %w: %w", r.URL.Host, errSilent, err)
	}
	return nil, err
}
