package objectstore

import (
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"

	"glimpse/internal/patience"
)

// damagedInTransit are the codes by which a server says that what arrived was not what was sent.
var damagedInTransit = []string{"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout", "MalformedXML"}

// transient tells of answers that another attempt may not get: one that was cut or is
// not what the protocol says, and a refusal of what was damaged on its way.
func transient(err error) bool {
	var malformed *smithy.DeserializationError
	return errors.As(err, &malformed) || slices.Contains(damagedInTransit, codeOf(err))
}

// retryable is the SDK's question whether a request is sent again.
type retryable struct{}

func (retryable) IsErrorRetryable(err error) aws.Ternary {
	switch {
	case patience.Hopeless(err), errors.Is(err, errUnreachable):
		return aws.FalseTernary
	case transient(err), errors.Is(err, patience.ErrStalled):
		return aws.TrueTernary
	}
	return aws.UnknownTernary
}
