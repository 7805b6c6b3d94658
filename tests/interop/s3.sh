#!/usr/bin/env bash
# Publishes stores on an S3 server, looks at them, trains from them with several processes, and brings one back.
#
#   s3.sh PROGRAMS     the folder of the programs; LOADERX_S3 and the AWS variables say where the server is
set -euo pipefail
loaderx=$1/loaderx
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOADERX_CACHE=$folder/cache

"$loaderx" import examples/mnist/data/train.npz "$folder/mnist"
for store in images labels; do "$loaderx" push "$folder/mnist/$store" "$LOADERX_S3/mnist/$store"; done
# Nothing is sent again.
"$loaderx" push --json "$folder/mnist/images" "$LOADERX_S3/mnist/images" | grep '"sent":0'
"$loaderx" info "$LOADERX_S3/mnist/images"
"$loaderx" plan "$LOADERX_S3/mnist/images" --batch-size 64 --world 2 --block 512 --window 4
"$loaderx" pull "$LOADERX_S3/mnist/images" "$folder/pulled"
"$loaderx" verify "$folder/pulled"
cmp "$folder/pulled/0.zr" "$folder/mnist/images/0.zr"
# A wrong secret is refused, and is not shown.
if AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_SECRET_ACCESS_KEY=hunter2 timeout 120 "$loaderx" info s3://loaderx/x 2>"$folder/error"; then exit 1; fi
! grep hunter2 "$folder/error"
if grep -r not-a-secret "$folder/cache" >/dev/null; then exit 1; fi
examples/distributed/check.sh "$1/examples/distributed" "$LOADERX_S3/mnist"
