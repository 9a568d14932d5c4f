package objectstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"glimpse/internal/patience"
)

// fail describes a failed request: operation, object, what the server said, and
// what to do about it where that is known.
func (b *bucket) fail(op, key string, err error) error {
	return fmt.Errorf("%s %s: %w", op, b.URL(key), b.explain(err))
}

func (b *bucket) explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	status, code := statusOf(err), codeOf(err)
	switch {
	case code == "NoSuchBucket":
		return fmt.Errorf("bucket %q does not exist: %w", b.name, ErrNotExist)
	case code == "SignatureDoesNotMatch":
		return fmt.Errorf("%w: the secret does not fit the access key; check AWS_SECRET_ACCESS_KEY", ErrDenied)
	case strings.EqualFold(code, "InvalidAccessKeyId"):
		return fmt.Errorf("%w: the server does not know the access key; check AWS_ACCESS_KEY_ID", ErrDenied)
	case status == 403 || status == 401:
		return fmt.Errorf("%w: %s", ErrDenied, said(err))
	case code == "PreconditionFailed" || status == 412:
		return ErrExists
	case code == "NoSuchKey" || code == "NotFound" || code == "NoSuchUpload":
		return ErrNotExist
	case status != 0:
		return answer{said(err), err}
	case credentialless(err):
		return answer{"no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", errors.Join(ErrDenied, err)}
	}
	return networkError(err)
}

// answer is an error of the server, in words that a user can do something with.
type answer struct {
	text  string
	cause error
}

func (a answer) Error() string { return a.text }
func (a answer) Unwrap() error { return a.cause }

// said is the server's message without the request ids.
func said(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		if api.ErrorMessage() == "" {
			return fmt.Sprintf("the server answered %d %s", statusOf(err), api.ErrorCode())
		}
		return fmt.Sprintf("the server answered %d %s: %s", statusOf(err), api.ErrorCode(), api.ErrorMessage())
	}
	return err.Error()
}

// credentialless tells that a request was not sent because nothing could sign it.
func credentialless(err error) bool {
	// The SDK has no type for it.
	return strings.Contains(err.Error(), "get identity: get credentials: ")
}

// codeOf is the server's error code, "" if it has not answered.
func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// statusOf is the HTTP status, 0 if there was no answer.
func statusOf(err error) int {
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		return response.HTTPStatusCode()
	}
	return 0
}

// final tells that the server has refused, so that another attempt would end the
// same way.
func final(err error) bool {
	if transient(err) {
		return false
	}
	status := statusOf(err)
	return status >= 400 && status < 500 && status != 408 && status != 429 ||
		patience.Hopeless(err) || errors.Is(err, errUnreachable) || errors.Is(err, ErrExists) || errors.Is(err, ErrDenied) || errors.Is(err, ErrNotExist)
}
