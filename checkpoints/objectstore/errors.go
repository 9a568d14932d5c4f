package objectstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"glimpse/internal/patience"
	"glimpse/internal/secret"
)

// requestError describes a failed request: operation, object, what the server said, and
// what to do about it where that is known.
func (b *bucket) requestError(op, key string, err error) error {
	explained := b.explain(err)
	if statusOf(err) != 0 { // a server may repeat what it got
		if c, noneErr := b.client.Options().Credentials.Retrieve(context.Background()); noneErr == nil { // the request's own, from the SDK's cache
			explained = secret.MaskError(explained, c.SecretAccessKey, c.SessionToken)
		}
	}
	return fmt.Errorf("%s %s: %w", op, b.URL(key), explained)
}

func (b *bucket) explain(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if none, ok := errors.AsType[*credentialsError](err); ok {
		return none
	}
	status, code := statusOf(err), codeOf(err)
	switch {
	case slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}, code):
		return fmt.Errorf("%w: the credentials have ended: %s", ErrDenied, said(err))
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
	case status >= 300 && status < 400:
		return answer{fmt.Sprintf("%s; it redirects to %s, which is not followed: name the server with --s3-endpoint, and the region with --s3-region", said(err), location(err)), err}
	case status != 0:
		return answer{said(err), err}
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
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		if api.ErrorMessage() == "" {
			return fmt.Sprintf("the server answered %d %s", statusOf(err), api.ErrorCode())
		}
		return fmt.Sprintf("the server answered %d %s: %s", statusOf(err), api.ErrorCode(), api.ErrorMessage())
	}
	return err.Error()
}

// codeOf is the server's error code, "" if it has not answered.
func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// statusOf is the HTTP status, 0 if there was no answer.
func statusOf(err error) int {
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return 0
}

// location is the server that a redirect points to.
func location(err error) string {
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && response.Response != nil {
		h := response.Response.Header
		// The SDK puts an address of its own where a server gave none.
		if u, err := url.Parse(h.Get("Location")); err == nil && u.Host != "" && !strings.HasSuffix(u.Path, "/badhttpredirectlocation") {
			return u.Scheme + "://" + u.Host
		}
		if region := h.Get("X-Amz-Bucket-Region"); region != "" {
			return "region " + region
		}
	}
	return "a place that it does not name"
}

// final tells that the server has refused, so that another attempt would end the
// same way.
func final(err error) bool {
	if transient(err) {
		return false
	}
	status := statusOf(err)
	return status >= 300 && status < 500 && status != 408 && status != 429 ||
		patience.Hopeless(err) || errors.Is(err, errUnreachable) || errors.Is(err, ErrExists) || errors.Is(err, ErrDenied) || errors.Is(err, ErrNotExist)
}
