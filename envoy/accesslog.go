package envoy

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	streamv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stream/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// accessLog writes one line of JSON per request to standard output. JSON, since
// text of a client could otherwise forge lines.
func accessLog() *accesslogv3.AccessLog {
	fields := map[string]string{
		"time": "%START_TIME%", "duration_ms": "%DURATION%", "request_id": "%REQ(X-REQUEST-ID)%",
		"client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "user_agent": "%REQ(USER-AGENT)%", "referer": "%REQ(REFERER)%",
		"method": "%REQ(:METHOD)%", "host": "%REQ(:AUTHORITY)%", "path": "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%", "protocol": "%PROTOCOL%",
		"status": "%RESPONSE_CODE%", "flags": "%RESPONSE_FLAGS%", "details": "%RESPONSE_CODE_DETAILS%",
		"bytes_received": "%BYTES_RECEIVED%", "bytes_sent": "%BYTES_SENT%",
		"ingress": "%ROUTE_NAME%", "cluster": "%UPSTREAM_CLUSTER_RAW%", "endpoint": "%UPSTREAM_HOST%",
	}
	format := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for k, v := range fields {
		format.Fields[k] = structpb.NewStringValue(v)
	}
	return &accesslogv3.AccessLog{
		Name: "envoy.access_loggers.stdout",
		ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: mustAny(&streamv3.StdoutAccessLog{
			AccessLogFormat: &streamv3.StdoutAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
				Format:          &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: format},
				OmitEmptyValues: true,
			}},
		})},
	}
}
