package objectstore

import (
	"context"
	"errors"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"glimpse/internal/patience"
)

// damagedInTransit are the codes of a server that got something else than was sent.
var damagedInTransit = []string{"BadDigest", "InvalidDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout", "MalformedXML"}

// transient tells of answers that another attempt may not get: one that was cut, wherever, or
// is not what the protocol says, and a refusal of a body that was damaged on its way.
func transient(err error) bool {
	code := codeOf(err)
	if status := statusOf(err); status >= 200 && status < 300 && code == "" {
		return true // success, and yet an error: its body was not what it should be
	}
	return errors.As(err, new(*smithy.DeserializationError)) || slices.Contains(damagedInTransit, code)
}

// refuseEmptyAnswers makes an error of an answer without what it must have. The SDK takes a
// body of no bytes for a list of nothing and for an upload without a name.
func refuseEmptyAnswers(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("GlimpseRefuseEmptyAnswers", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if err == nil && empty(out.Result) {
			err = &smithy.DeserializationError{Err: errors.New("the server's answer is empty")}
		}
		return out, metadata, err
	}), middleware.Before)
}

func empty(result any) bool {
	switch r := result.(type) {
	case *s3.ListObjectsV2Output:
		return r.Name == nil && r.IsTruncated == nil && len(r.Contents) == 0
	case *s3.ListMultipartUploadsOutput:
		return r.Bucket == nil && r.IsTruncated == nil && len(r.Uploads) == 0
	case *s3.ListPartsOutput:
		return r.Bucket == nil && r.IsTruncated == nil && len(r.Parts) == 0
	case *s3.CreateMultipartUploadOutput:
		return r.UploadId == nil
	case *s3.CompleteMultipartUploadOutput:
		return r.Key == nil && r.ETag == nil
	}
	return false
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
